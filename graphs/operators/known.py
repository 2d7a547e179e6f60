"""Values known before a run: shape computations evaluated in plain Python, rounded and wrapped as the dtype would.

Only small tensors are followed (LIMIT elements); bfloat16 and float8 values are not, since plain Python cannot round
to them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import Constant, OpCall, Scalar, TensorType
from kgrun.graphs.operators.shapes import Shape, broadcast_strides, strides_of

LIMIT = 1024
_PACKED = {"float32": "<f", "float16": "<e"}
_FOLLOWED = frozenset(name for name, d in DTYPES.items() if d.kind != "float" or name in ("float64", *_PACKED))


def converted(value: Scalar, dtype: str) -> Scalar:
    """`value` as `dtype` holds it: integers wrap, floats round, NaN and infinities become 0 as integers."""
    kind = DTYPES[dtype].kind
    if kind == "bool":
        return bool(value)
    if kind == "float":
        return _rounded(float(value), dtype)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return 0
    low, high = DTYPES[dtype].limits or (0, 0)
    return (int(value) - low) % (high - low + 1) + low


def _rounded(value: float, dtype: str) -> float:
    code = _PACKED.get(dtype)
    if code is None:
        return value
    try:
        return float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def values_of(*types: TensorType | None) -> list[Constant] | None:
    """The values of `types` (absent ones left out), or None unless all are known, small and of a followed dtype."""
    found = []
    for type_ in types:
        if type_ is None:
            continue
        if type_.value is None or len(type_.value) > LIMIT or type_.dtype not in _FOLLOWED:
            return None
        found.append(type_.value)
    return found


def with_value(type_: TensorType, value: Sequence[Scalar] | None) -> TensorType:
    """`type_` carrying `value` converted to its dtype; unchanged when there is none, or when it is too large."""
    if value is None or len(value) > LIMIT or type_.dtype not in _FOLLOWED:
        return type_
    return TensorType(type_.dtype, type_.shape, tuple(converted(v, type_.dtype) for v in value))


def strided(value: Constant, shape: Shape, strides: Shape, offset: int = 0) -> Constant:
    """Elements `offset + sum(index * stride)` of `value` for every index of `shape`, row-major."""
    return tuple(value[offset + place] for place in _places(shape, strides))


def _places(shape: Shape, strides: Shape) -> Iterator[int]:
    steps = [[index * stride for index in range(size)] for size, stride in zip(shape, strides, strict=True)]
    return map(sum, product(*steps))


def elementwise(call: OpCall, result: TensorType, function: Callable[..., Scalar]) -> TensorType:
    """`result` with the value of `function` over the broadcast inputs, when these are known.

    A function that raises ArithmeticError (a division by zero) leaves the value unknown.
    """
    values = values_of(*call.inputs)
    if values is None or result.size > LIMIT:
        return result
    types = [type_ for type_ in call.inputs if type_ is not None]
    operands = [
        strided(value, result.shape, broadcast_strides(type_.shape, result.shape))
        for value, type_ in zip(values, types, strict=True)
    ]
    try:
        return with_value(result, [function(*items) for items in zip(*operands, strict=True)])
    except (ArithmeticError, ValueError):
        return result


def reduced(source: TensorType, axes: Sequence[int], function: Callable[[list[Scalar]], Scalar]) -> Constant | None:
    """`function` over the elements along `axes`, one result for each index of the other axes; None when unknown."""
    if values_of(source) is None or source.value is None:
        return None
    strides = strides_of(source.shape)
    kept = [axis for axis in range(len(source.shape)) if axis not in axes]
    inner = list(_places(tuple(source.shape[a] for a in axes), tuple(strides[a] for a in axes)))
    outer = _places(tuple(source.shape[a] for a in kept), tuple(strides[a] for a in kept))
    try:
        return tuple(function([source.value[base + step] for step in inner]) for base in outer)
    except (ArithmeticError, ValueError):
        return None
