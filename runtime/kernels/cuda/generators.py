"""Generators on CUDA: elements that follow from shapes and constants, computed or carried as launch arguments."""

from __future__ import annotations

import struct

from kgrun.graphs.dtypes import DTYPES, itemsize
from kgrun.graphs.operators.base import Constant, OpCall, Scalar, TensorType
from kgrun.graphs.operators.generators import constant_items, range_terms
from kgrun.graphs.operators.known import converted
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import code, compute_type, int64, launch, prelude, target
from kgrun.runtime.program import Value

_CARRIED = 2_048  # bytes a launch; parameter space is 4 KiB
_PACKED = {"int64": "q", "int32": "i", "int16": "h", "int8": "b", "bool": "?", "float64": "d"}
_PACKED |= {f"u{name}": letter.upper() for name, letter in _PACKED.items() if name.startswith("int")}


@on_cuda("Constant", "Shape", "Size")
def _carried(call: OpCall) -> Lowered:
    out = call.outputs[0]
    items = constant_items(call) if call.op == "Constant" else out.value
    if items is None:
        call.fail(f"{call.op}: its value is not known")
    return Lowered(carry(out, items))


@on_cuda("ConstantOfShape")
def _filled(call: OpCall) -> Lowered:
    out = call.outputs[0]
    if out.size == 0:
        return Lowered(())
    value = _argument([call.attributes["value"]], out.dtype)
    text = f"{prelude([out.dtype])}typedef {DTYPES[out.dtype].c_type} O;\n" + (
        f'extern "C" __global__ void kg_fill(O* q, {_carrier(out.dtype)} value, long long n) {{\n'
        "  const O v = kg_to<O>(value);\n"
        "  const long long step = gridDim.x * (long long)blockDim.x;\n"
        "  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) q[i] = v;\n}\n"
    )
    return Lowered((launch(code("kg_fill", text), (target(), value, int64(out.size)), out.size),))


@on_cuda("Range")
def _range(call: OpCall) -> Lowered:
    out = call.outputs[0]
    if out.size == 0:
        return Lowered(())
    start, delta, _ = range_terms(call)
    text = f"{prelude([out.dtype])}typedef {DTYPES[out.dtype].c_type} O;\ntypedef {compute_type(out.dtype)} T;\n" + (
        f'extern "C" __global__ void kg_range(O* q, {_carrier(out.dtype)} start, {_carrier(out.dtype)} delta, '
        "long long n) {\n"
        "  const long long step = gridDim.x * (long long)blockDim.x;\n"
        "  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step)\n"
        "    q[i] = kg_to<O>((T)(start + delta * i));\n}\n"
    )
    args = (target(), _argument([start], out.dtype), _argument([delta], out.dtype), int64(out.size))
    return Lowered((launch(code("kg_range", text), args, out.size),))


@on_cuda("EyeLike")
def _eye_like(call: OpCall) -> Lowered:
    out = call.outputs[0]
    if out.size == 0:
        return Lowered(())
    text = f"{prelude([out.dtype])}typedef {DTYPES[out.dtype].c_type} O;\n" + (
        'extern "C" __global__ void kg_eye(O* q, long long k, long long columns, long long n) {\n'
        "  const long long step = gridDim.x * (long long)blockDim.x;\n"
        "  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step)\n"
        "    q[i] = kg_to<O>(i % columns - i / columns == k ? 1.0f : 0.0f);\n}\n"
    )
    args = (target(), int64(call.attributes["k"]), int64(out.shape[1]), int64(out.size))
    return Lowered((launch(code("kg_eye", text), args, out.size),))


def _carrier(dtype: str) -> str:
    """The C type in which elements of `dtype` travel as arguments: double for every float."""
    return "double" if DTYPES[dtype].kind == "float" else DTYPES[dtype].c_type


def _argument(items: Constant | list[Scalar], dtype: str) -> Value:
    letter = "d" if DTYPES[dtype].kind == "float" else _PACKED[dtype]
    values = [float(item) if letter == "d" else converted(item, dtype) for item in items]
    return Value(struct.pack(f"<{len(values)}{letter}", *values), struct.calcsize(f"<{letter}"))


def carry(out: TensorType, items: Constant, to: Operand | None = None) -> tuple[KernelCall, ...]:
    """`items` written to output 0, or `to`, by as many launches as it takes to carry them as arguments."""
    carrier = _carrier(out.dtype)
    width = 8 if carrier == "double" else itemsize(out.dtype)
    each = _CARRIED // width
    text = f"{prelude([out.dtype])}typedef {DTYPES[out.dtype].c_type} O;\n" + (
        f"struct Items {{ {carrier} at[{each}]; }};\n"
        'extern "C" __global__ void kg_store(\n'
        "    O* q, const __grid_constant__ Items items, long long first, long long n) {\n"
        "  for (long long i = threadIdx.x; i < n; i += blockDim.x) q[first + i] = kg_to<O>(items.at[i]);\n}\n"
    )
    work = []
    for first in range(0, out.size, each):
        part = list(items[first : first + each])
        value = _argument(part + [0] * (each - len(part)), out.dtype)
        args = (to or target(), value, int64(first), int64(len(part)))
        work.append(launch(code("kg_store", text), args, 1))
    return tuple(work)
