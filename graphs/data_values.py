"""Values written in the graph file, to typed elements; needs no numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from math import inf, nan, prod
from typing import TYPE_CHECKING

from kgrun.graphs.dtypes import DTYPES, MAX_AXES
from kgrun.graphs.errors import GraphError, Place, placed
from kgrun.graphs.expressions import evaluate

if TYPE_CHECKING:
    from kgrun.graphs.schema.tensors import TensorSpec

Element = bool | int | float

# The largest finite value of each float type.
FLOAT_MAX = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
}
# The same with as few digits as files write: float32's is a little more, and rounds to it.
WRITTEN_MAX = FLOAT_MAX | {"float32": 3.4028235e38}
_WORDS = {"nan": nan, "inf": inf, "-inf": -inf}
# A scalar spread over a shape is known element by element up to here.
MAX_SPREAD = 1 << 16


def constant_value(
    spec: TensorSpec, dims: Mapping[str, int], where: Place | None = None
) -> tuple[str, tuple[int, ...], tuple[Element, ...] | None]:
    """Type and elements (row-major) of a tensor with an inline `value` or `string`.

    Without a dtype, whole numbers make int64, numbers with a fraction float32, booleans bool. Without a shape, the
    nesting tells it; one number spreads over any shape. Elements are None where it spreads over more than MAX_SPREAD.

    Raises:
        GraphError: KG377 for a ragged, misfit or out-of-range value, KG32x for an expression.
        UsageError: KG220 for an expression that uses an unbound dimension.
    """
    if spec.string is not None:
        data = spec.string.encode("utf-8")
        return "uint8", (len(data),), tuple(data)
    with placed(where):
        dtype, found, elements = typed_elements(spec.value, spec.dtype, dims)
        if spec.shape is None:
            return dtype, found, tuple(elements)
        shape = tuple(evaluate(e, dims) for e in spec.shape)
        check_shape(found, shape)
    if found == shape:
        return dtype, shape, tuple(elements)
    return dtype, shape, tuple(repeat(elements[0], prod(shape))) if prod(shape) <= MAX_SPREAD else None


def typed_elements(
    value: object, dtype: str | None, dims: Mapping[str, int]
) -> tuple[str, tuple[int, ...], list[Element]]:
    """The dtype (inferred where it is None), the nesting's shape and the checked elements of `value`."""
    shape, items = _flat(value)
    dtype = dtype or _inferred(items)
    return dtype, shape, [element(item, dtype, dims) for item in items]


def check_shape(found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """GraphError KG377 unless a value of shape `found` fills a tensor of shape `wanted`: equal, or one number."""
    if any(n < 0 for n in wanted):
        raise GraphError(f"shape {list(wanted)} has a negative dimension", code="KG377")
    if found not in ((), wanted):
        raise GraphError(f"the value has shape {list(found)}, the tensor {list(wanted)}", code="KG377")


def element(item: object, dtype: str, dims: Mapping[str, int]) -> Element:
    """One element as `dtype` takes it; GraphError KG377 when it does not."""
    kind = DTYPES[dtype].kind
    if kind == "bool":
        if isinstance(item, bool) or (isinstance(item, int) and item in (0, 1)):
            return bool(item)
        raise _misfit(item, dtype)
    if isinstance(item, bool):
        raise _misfit(item, dtype)
    if kind == "float":
        return _float_element(item, dtype, dims)
    if isinstance(item, str):
        item = evaluate(item, dims)
    if not isinstance(item, int):
        raise _misfit(item, dtype)
    low, high = DTYPES[dtype].limits or (0, 0)
    if not low <= item <= high:
        raise GraphError(f"{item} is outside {dtype}: [{low}, {high}]", code="KG377")
    return item


def _float_element(item: object, dtype: str, dims: Mapping[str, int]) -> float:
    if isinstance(item, str):
        number: int | float = _WORDS[item] if item in _WORDS else evaluate(item, dims)
    elif isinstance(item, (int, float)):
        number = item
    else:
        raise _misfit(item, dtype)
    if dtype == "float8_e4m3fn" and number in (inf, -inf):
        raise GraphError("float8_e4m3fn has no infinities", code="KG377")
    if abs(number) > WRITTEN_MAX[dtype] and number not in (inf, -inf):
        raise GraphError(f"{number} is outside {dtype}: at most {FLOAT_MAX[dtype]}", code="KG377")
    return float(number)


def _misfit(item: object, dtype: str) -> GraphError:
    text = repr(item) if len(repr(item)) <= 40 else "…"
    return GraphError(f"{text} is no {dtype} value", code="KG377")


def _inferred(items: Sequence[object]) -> str:
    booleans = sum(isinstance(item, bool) for item in items)
    if booleans:
        if booleans < len(items):
            raise GraphError("booleans and numbers in one value", code="KG377")
        return "bool"
    return "float32" if any(isinstance(i, float) or (isinstance(i, str) and i in _WORDS) for i in items) else "int64"


def _flat(value: object) -> tuple[tuple[int, ...], list[object]]:
    """Shape and elements of nested lists, level by level: they may nest deeply and be long."""
    shape: list[int] = []
    level = [value]
    while level and isinstance(level[0], list):
        length = len(level[0])
        nested: list[object] = []
        for item in level:
            if not isinstance(item, list) or len(item) != length:
                raise GraphError(f"ragged value: lists of different lengths at level {len(shape) + 1}", code="KG377")
            nested += item
        shape.append(length)
        level = nested
    if len(shape) > MAX_AXES:
        raise GraphError(f"a value of {len(shape)} axes; a tensor has at most {MAX_AXES}", code="KG377")
    if any(isinstance(item, list) for item in level):
        raise GraphError(f"ragged value: lists and numbers side by side at level {len(shape)}", code="KG377")
    return tuple(shape), level
