"""Reductions and row-wise operators: Reduce*, ArgMax, ArgMin, Softmax and its kin, LayerNormalization.

A Reduce* row says how it is computed, in CUDA C: `map` an element x, `combine` partial results a and b starting from
`init` (zero, one, lowest, highest), `finish` the result a of n elements. With `shift`, m is the largest element of the
reduced ones, or 0 where that is infinite. Elements are computed in T: float for float16 and bfloat16, their own type
otherwise. Softmax, LogSoftmax, Hardmax and LayerNormalization may write over input 0: a kernel reads what it needs of
a row before it writes any of it, or rereads only elements that the same thread writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kgrun.graphs.dtypes import NUMBERS, WIDE_FLOATS
from kgrun.graphs.operators import scalars
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, Scalar, TensorType, register
from kgrun.graphs.operators.known import reduced, with_value
from kgrun.graphs.operators.shapes import axis_of, broadcast_shape, counted_axes, like, same_dtype

_WIDE_INTEGERS = frozenset({"int32", "int64", "uint32", "uint64"})
_REDUCED = WIDE_FLOATS | _WIDE_INTEGERS
_COMPARED = _REDUCED | {"int8", "uint8", "bool"}


def reduced_axes(call: OpCall) -> tuple[int, ...]:
    """The axes a Reduce* call reduces, ascending; empty when it only copies (noop_with_empty_axes)."""
    rank = len(call.input(0).shape)
    axes = call.ints(1, "axes")
    if not axes:
        return () if call.attributes["noop_with_empty_axes"] else tuple(range(rank))
    return tuple(sorted(counted_axes(call, axes, rank)))


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """`shape` without `axes`, or with size 1 there."""
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _reduce(
    name: str,
    combine: str,
    init: str,
    *,
    map: str = "x",
    finish: str = "a",
    shift: bool = False,
    dtypes: frozenset[str] = _REDUCED,
    value: Callable[[list[Scalar]], Scalar] | None = None,
) -> OpSchema:
    def infer(call: OpCall) -> list[TensorType]:
        source, axes = call.input(0), reduced_axes(call)
        out = TensorType(source.dtype, reduced_shape(source.shape, axes, bool(call.attributes["keepdims"])))
        return [with_value(out, reduced(source, axes, value) if value else None)]

    return OpSchema(
        name,
        "reduction",
        (1, 2),
        infer,
        dtypes=dtypes,
        attributes={
            "axes": Attribute("ints"),
            "keepdims": Attribute("int", 1),
            "noop_with_empty_axes": Attribute("int", 0),
        },
        host_inputs=frozenset({1}),
        flops=lambda call: call.input(0).size,
        data={"map": map, "combine": combine, "init": init, "finish": finish, "shift": shift},
    )


def _mean(items: list[Scalar]) -> Scalar:
    return scalars.divide(sum(items), len(items))


def _arg(call: OpCall) -> list[TensorType]:
    axis, shape = axis_of(call), call.input(0).shape
    if shape[axis] == 0:
        call.fail(f"{call.op}: axis {axis} is empty", "inputs", 0)
    return [TensorType("int64", reduced_shape(shape, (axis,), bool(call.attributes["keepdims"])))]


def _row_wise(call: OpCall) -> list[TensorType]:
    axis_of(call)
    return [like(call.input(0))]


def _layer_normalization(call: OpCall) -> list[TensorType]:
    source, axis = call.input(0), axis_of(call)
    same_dtype(call, 0, 1, 2)
    normal = source.shape[axis:]
    for index in (1, 2):
        found = call.optional(index)
        if found is not None and broadcast_shape(call, [normal, found.shape]) != normal:
            call.fail(f"{call.op}: {list(found.shape)} does not broadcast to {list(normal)}", "inputs", index)
    if call.attributes["stash_type"] not in (1, 16):
        call.fail("LayerNormalization: stash_type is 1 (float32) or 16 (bfloat16)", "attributes", "stash_type")
    stash = "float32" if call.attributes["stash_type"] == 1 else "bfloat16"
    statistic = TensorType(stash, source.shape[:axis] + (1,) * len(normal))
    return [like(source), statistic, statistic][: call.output_count]


def _rows(name: str, flops: int) -> OpSchema:
    return OpSchema(
        name,
        "reduction",
        (1, 1),
        _row_wise,
        dtypes=WIDE_FLOATS,
        attributes={"axis": Attribute("int", -1)},
        inplace=(0,),
        flops=lambda call: flops * call.input(0).size,
    )


def _arg_extreme(name: str) -> OpSchema:
    return OpSchema(
        name,
        "reduction",
        (1, 1),
        _arg,
        dtypes=NUMBERS,
        attributes={
            "axis": Attribute("int", 0),
            "keepdims": Attribute("int", 1),
            "select_last_index": Attribute("int", 0),
        },
        flops=lambda call: call.input(0).size,
    )


register(
    _reduce("ReduceSum", "a + b", "zero", value=sum),
    _reduce("ReduceMean", "a + b", "zero", finish="a / T(n)", value=_mean),
    _reduce("ReduceProd", "a * b", "one", value=math.prod),
    _reduce("ReduceMax", "kg_max(a, b)", "lowest", dtypes=_COMPARED, value=lambda items: scalars.largest(*items)),
    _reduce("ReduceMin", "kg_min(a, b)", "highest", dtypes=_COMPARED, value=lambda items: scalars.least(*items)),
    _reduce("ReduceL1", "a + b", "zero", map="x < T(0) ? -x : x"),
    _reduce("ReduceL2", "a + b", "zero", map="x * x", finish="T(sqrt(double(a)))"),
    _reduce("ReduceSumSquare", "a + b", "zero", map="x * x"),
    _reduce("ReduceLogSum", "a + b", "zero", finish="log(a)", dtypes=WIDE_FLOATS),
    _reduce("ReduceLogSumExp", "a + b", "zero", map="exp(x - m)", finish="log(a) + m", shift=True, dtypes=WIDE_FLOATS),
    _arg_extreme("ArgMax"),
    _arg_extreme("ArgMin"),
    _rows("Softmax", 5),
    _rows("LogSoftmax", 5),
    _rows("Hardmax", 1),
    OpSchema(
        "LayerNormalization",
        "reduction",
        (2, 3),
        _layer_normalization,
        outputs=(1, 3),
        dtypes=WIDE_FLOATS,
        attributes={
            "axis": Attribute("int", -1),
            "epsilon": Attribute("float", 1e-5),
            "stash_type": Attribute("int", 1),
        },
        inplace=(0,),
        flops=lambda call: 8 * call.input(0).size,
    ),
)
