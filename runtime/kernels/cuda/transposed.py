"""Windows turned round on CUDA: every output gathers the taps that reach it, so that no atomics are needed.

ConvTranspose is an implicit matrix product over channels and taps, or a direct sum where a group has few filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.shapes import strides_of
from kgrun.graphs.operators.transposed import column_window, transposed_window, unpooled_shape
from kgrun.graphs.operators.windows import Window
from kgrun.runtime.kernels.base import ClearOperand, KernelCall, Lowered, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    Arguments,
    c_type,
    code,
    compute_type,
    index_type,
    int64,
    integers,
    launch,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.copies import UNITS
from kgrun.runtime.kernels.cuda.nn import FEW_FILTERS, coordinates, geometry, geometry_struct, implicit_product


def _tap(kernel: Sequence[int], tap: str, index: str) -> str:
    """C statements: which input place tap `tap` of the output at y0, y1, … comes from: `inside`, and `place`."""
    lines = [f"{index} place = 0; bool inside = true;"]
    for axis in range(len(kernel)):
        at = f"({tap} / {prod(kernel[axis + 1 :])} % {kernel[axis]})"
        lines.append(
            f"const {index} r{axis} = y{axis} + ({index})v.begin[{axis}] - {at} * ({index})v.dilation[{axis}];"
            f" const {index} x{axis} = r{axis} / ({index})v.stride[{axis}];"
            f" inside = inside && r{axis} >= 0 && r{axis} % ({index})v.stride[{axis}] == 0"
            f" && x{axis} < ({index})v.input[{axis}];"
            f" place = place * ({index})v.input[{axis}] + x{axis};"
        )
    return " ".join(lines)


@on_cuda("ConvTranspose")
def _conv_transpose(call: OpCall) -> Lowered:
    x, w, out = call.input(0), call.input(1), call.outputs[0]
    if out.size == 0:
        return Lowered(())
    window, group = transposed_window(call), call.attributes["group"]
    index = index_type((x.size, w.size, out.size))
    if group > 1 and w.shape[1] < FEW_FILTERS:
        return Lowered((_direct(call, window, group, index),))
    return Lowered((_implicit(call, window, group, index),))


def _operands(call: OpCall) -> Arguments:
    return (source_input(0), source_input(1), source_input(2) if call.optional(2) is not None else None, target())


def _implicit(call: OpCall, window: Window, group: int, index: str) -> KernelCall:
    x, w, taps = call.input(0), call.input(1), prod(window.kernel)
    sizes = (w.shape[1], x.shape[0] * prod(window.output), x.shape[1] // group * taps)
    load = f"""{{
    const {index} channel = ({index})i / {taps}, tap = ({index})i % {taps};
    return (S)w[((first + channel) * ({index})m + ({index})r) * {taps} + tap];
  }}"""
    place = _tap(window.kernel, "tap", index)
    return implicit_product(
        "kg_conv_transpose", call, window, group, index, sizes, load, place, _operands(call), along_k=False
    )


def _direct(call: OpCall, window: Window, group: int, index: str) -> KernelCall:
    """One thread an output element."""
    x, w, out = call.input(0), call.input(1), call.outputs[0]
    kernel, taps = window.kernel, prod(window.kernel)
    body = f"""const {index} filter = rest % ({index})filters, b = rest / ({index})filters;
    const {index} group = filter / ({index})of_group;
    T s = bias ? (T)bias[filter] : T(0);
    for ({index} channel = group * ({index})depth; channel < (group + 1) * ({index})depth; ++channel) {{
      const E* plane_x = x + (b * ({index})channels + channel) * ({index})plane;
      const E* taps = w + (channel * ({index})of_group + filter % ({index})of_group) * {taps};
#pragma unroll
      for (int tap = 0; tap < {taps}; ++tap) {{
        {_tap(kernel, "tap", index)}
        if (inside) s += (T)plane_x[place] * (T)taps[tap];
      }}
    }}"""
    names = "long long filters, long long of_group, long long depth, long long channels, long long plane"
    parameters = f"const E* x, const E* w, const E* bias, E* d, const Window v, {names}"
    sizes = (out.shape[1], w.shape[1], x.shape[1] // group, x.shape[1], prod(window.input))
    args: Arguments = (*_operands(call), geometry(window), *map(int64, sizes))
    return _per_output(call, "kg_transposed", window, index, (parameters, body, args))


def _per_output(call: OpCall, name: str, window: Window, index: str, work: tuple[str, str, Arguments]) -> KernelCall:
    """A kernel that sums `s` for every output element; `rest` is its flat index without the places.

    `work` has the kernel's parameters, the statements of the sum, and the arguments.
    """
    parameters, body, args = work
    dtype, out = call.input(0).dtype, call.outputs[0]
    text = f"""{prelude([dtype])}typedef {c_type(dtype)} E;
typedef {"int" if dtype == "bool" else compute_type(dtype)} T;
{geometry_struct(len(window.kernel))}extern "C" __global__ void __launch_bounds__(256) {name}(
    {parameters}, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long flat = blockIdx.x * (long long)blockDim.x + threadIdx.x; flat < n; flat += grid) {{
    {index} rest = ({index})flat;
    {coordinates(len(window.kernel), "rest", index)}
    {body}
    d[flat] = kg_to<E>(s);
  }}
}}
"""
    return launch(code(name, text), (*args, int64(out.size)), out.size)


@on_cuda("Col2Im")
def _col2im(call: OpCall) -> Lowered:
    source, out, window = call.input(0), call.outputs[0], column_window(call)
    if out.size == 0:
        return Lowered(())
    taps = prod(window.kernel)
    index = index_type((source.size, out.size))
    body = f"""T s = 0;
    const E* columns = x + rest * {taps} * ({index})places;
    for (int tap = 0; tap < {taps}; ++tap) {{
      {_tap(window.kernel, "tap", index)}
      if (inside) s += (T)columns[tap * ({index})places + place];
    }}"""
    parameters = "const E* x, E* d, const Window v, long long places"
    args: Arguments = (source_input(0), target(), geometry(window), int64(prod(window.input)))
    return Lowered((_per_output(call, "kg_col2im", window, index, (parameters, body, args)),))


@on_cuda("MaxUnpool")
def _max_unpool(call: OpCall) -> Lowered:
    source, out, inner = call.input(0), call.outputs[0], unpooled_shape(call)
    if out.size == 0:
        return Lowered(())
    clear = ClearOperand(target(), out.nbytes)
    if source.size == 0:
        return Lowered((clear,))
    rank = len(inner)
    text = f"""typedef {UNITS[out.nbytes // out.size]} E;
struct Layout {{ long long size[{rank}], step[{rank}]; }};
extern "C" __global__ void __launch_bounds__(256) kg_unpool(
    const E* p, const long long* at, E* q, const Layout g, long long most, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {{
    long long rest = at[i], place = 0;
    if (rest < 0 || rest >= most) __trap();
#pragma unroll
    for (int axis = {rank - 1}; axis >= 0; --axis) {{
      place += rest % g.size[axis] * g.step[axis];
      rest /= g.size[axis];
    }}
    q[place] = p[i];
  }}
}}
"""
    layout = integers([*inner, *strides_of(out.shape)])
    args: Arguments = (source_input(0), source_input(1), target(), layout, int64(prod(inner)), int64(source.size))
    return Lowered((clear, launch(code("kg_unpool", text), args, source.size)))
