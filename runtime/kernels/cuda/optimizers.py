"""Optimizers on CUDA: one launch a parameter, a thread an element, rate and update count read from the device.

A thread reads all operands of an element before it writes any: results may lie in the memory of their inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

from kgrun.graphs.operators import all_schemas
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.optimizers import first_tensor, results_of, tensors_of
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    c_type,
    code,
    compute_type,
    int64,
    launch,
    prelude,
    source_input,
    target,
)


@on_cuda("SGD", "Momentum", "Adagrad", "Adam")
def _optimizer(call: OpCall) -> Lowered:
    schema = all_schemas()[call.op]
    rule, states = schema.data["update"](call), schema.data["states"]
    scalars = [("rate", call.input(0)), *([("count", call.input(1))] if first_tensor(call) == 2 else [])]
    body = "const long long t = count[0];\n    " if len(scalars) == 2 else ""
    body += f"T r = (T)rate[0];\n    {rule}"
    work = []
    for sources, results in zip(tensors_of(call), results_of(call), strict=True):
        kind = call.input(sources[0])
        if kind.size:
            operands = [source_input(position) for position in (*range(len(scalars)), *sources)]
            written = [target(position) for position in results]
            work.append(_update(kind, scalars, ("x", "g", *states), ("x", *states), body, [*operands, *written]))
    return Lowered(tuple(work))


@on_cuda("ApplyMomentum")
def _apply_momentum(call: OpCall) -> Lowered:
    kind = call.input(0)
    if kind.size == 0:
        return Lowered(())
    step = "(g + v * T(decay[0]))" if call.attributes["use_nesterov"] else "v"
    body = f"v = v * T(decay[0]) + g; x = x - T(rate[0]) * {step};"
    operands = [source_input(position) for position in (2, 4, 0, 3, 1)] + [target(0), target(1)]
    scalars = [("rate", call.input(2)), ("decay", call.input(4))]
    return Lowered((_update(kind, scalars, ("x", "g", "v"), ("x", "v"), body, operands),))


def _update(
    kind: TensorType,
    scalars: Sequence[tuple[str, TensorType]],
    read: Sequence[str],
    written: Sequence[str],
    body: str,
    operands: Sequence[Operand],
) -> KernelCall:
    """The launch that reads `read` of every element, runs `body` and stores `written`."""
    parameters = [f"const {c_type(type_.dtype)}* {name}" for name, type_ in scalars]
    parameters += [f"const E* p_{name}" for name in read] + [f"E* q_{name}" for name in written]
    loads = " ".join(f"T {name} = (T)p_{name}[i];" for name in read)
    stores = " ".join(f"q_{name}[i] = kg_to<E>({name});" for name in written)
    text = f"""{prelude([kind.dtype, *(type_.dtype for _, type_ in scalars)])}
typedef {c_type(kind.dtype)} E;
typedef {compute_type(kind.dtype)} T;
extern "C" __global__ void __launch_bounds__(256) kg_update({", ".join(parameters)}, long long n) {{
  const long long step = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) {{
    {loads}
    {body}
    {stores}
  }}
}}
"""
    return launch(code("kg_update", text), (*operands, int64(kind.size)), kind.size)
