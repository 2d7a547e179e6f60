"""What the lists of operator calls share: dtype classes, known vectors, a short way to write a call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import OpCall, TensorType

CLASSES = ("float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8", "bool", "float8_e4m3fn")
Ints = tuple[int, ...]


def known(*values: int) -> TensorType:
    """An int64 vector whose elements are known before the run."""
    return TensorType("int64", (len(values),), values)


def call(op: str, dtype: str, /, *shapes: Ints | TensorType | None, outputs: int = 1, **attributes: Any) -> OpCall:
    """A use of `op` over tensors of `dtype` and of given types."""
    types = [TensorType(dtype, shape) if isinstance(shape, tuple) else shape for shape in shapes]
    return infer(op, f"{op}_{dtype}", types, attributes, outputs)


def turned(found: OpCall, *positions: int) -> OpCall:
    """The same product with these operands in memory with their last two axes swapped."""
    return replace(found, turned=frozenset(positions))


def dtypes_of(op: str) -> list[str]:
    """The dtype classes that `op` takes as input 0."""
    return [dtype for dtype in CLASSES if dtype in all_schemas()[op].dtypes]
