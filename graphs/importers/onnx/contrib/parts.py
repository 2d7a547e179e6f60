"""Pieces of graph that several of ONNX Runtime's operators are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Use
from kgrun.graphs.importers.onnx.values import Value

Results = Sequence[Value | None]
Contrib = Callable[[Use], Results]


def like(use: Use, value: Value, number: float) -> Value:
    """A scalar of the value's type."""
    return use.constant(dtype_of(value), (), (float(number),))


def dtype_of(value: Value) -> str:
    """The value's element type; float32 where it is not known."""
    return value.type.dtype if value.type is not None else "float32"


def length(use: Use, value: Value, axis: int) -> Value:
    """The extent of an axis as an int64 of no axes."""
    extent = use.part("Shape", [value], start=axis, end=axis + 1)
    return use.part("Reshape", [extent, use.ints([])])


def count(use: Use, end: Value) -> Value:
    """0, 1, … end - 1 as int64."""
    return use.part("Range", [use.scalar(0), end, use.scalar(1)])


def unsqueezed(use: Use, value: Value, *axes: int) -> Value:
    """`value` with axes of one element, at these positions of the result."""
    return use.part("Unsqueeze", [value, use.ints(axes)])


def sums(use: Use, *values: Value | None) -> Value | None:
    """The sum of those that are there; None where none is."""
    found = [value for value in values if value is not None]
    if not found:
        return None
    total = found[0]
    for value in found[1:]:
        total = use.part("Add", [total, value])
    return total


def moved(use: Use, value: Value, *, last: bool) -> Value:
    """The channels from axis 1 to the end (`last`), or from the end to axis 1."""
    rank = value.rank
    if rank is None:
        raise Unsupported("the rank of its input is not known")
    perm = [0, *range(2, rank), 1] if last else [0, rank - 1, *range(1, rank - 1)]
    return use.part("Transpose", [value], perm=perm)


def refuse(use: Use, **allowed: object) -> None:
    """Unsupported for an attribute of these names that is there with another value."""
    for name, value in allowed.items():
        if use.attributes.get(name, value) != value:
            raise Unsupported(f"attribute {name!r} of {use.attributes[name]!r}")


def refuse_inputs(use: Use, **positions: int) -> None:
    """Unsupported for an input of these names and positions that is there and not empty."""
    for name, position in positions.items():
        found = use.input(position)
        if found is not None and found.shape != (0,):
            raise Unsupported(f"input {position} ({name})")
