"""Calls of every builtin operator, small enough to check by element, for every dtype class and special shape."""

from __future__ import annotations

from collections.abc import Iterator

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import OpCall, TensorType
from tests.runtime.kernels.cuda import (
    attention_calls,
    decoding_calls,
    index_calls,
    layer_calls,
    quantization_calls,
    random_calls,
    recurrent_calls,
    training_calls,
)
from tests.runtime.kernels.cuda.call_basics import CLASSES, call, dtypes_of, known, turned


def calls_of(op: str) -> Iterator[OpCall]:
    """Representative calls of `op`: each dtype class, and each special road of its kernel once."""
    family = all_schemas()[op].family
    if family != "collectives":  # they move data between ranks: tests/runtime/collectives holds them
        yield from _FAMILIES[family](op)


def _elementwise(op: str) -> Iterator[OpCall]:
    schema = all_schemas()[op]
    attributes = {"BitShift": {"direction": "LEFT"}, "Cast": {"to": "float32"}}.get(op, {})
    count = max(schema.inputs[0], min(schema.inputs[1], 2))
    for dtype in dtypes_of(op):
        if op == "Where":
            continue
        if op == "Clip":
            yield call(op, dtype, (3, 37), (), ())
            continue
        yield call(op, dtype, *[(3, 37)] * count, **attributes)
        if count == 2 and op != "CastLike":
            yield call(op, dtype, (2, 3, 5), (3, 1), **attributes)
    if op == "Where":
        for dtype in ("float32", "float16", "int64", "bool", "float8_e5m2"):
            x = TensorType(dtype, (4, 5))
            yield infer(op, f"where_{dtype}", [TensorType("bool", (4, 1)), x, TensorType(dtype, ())], {})
            for shape in ((4, 5, 1), (8,)):  # several elements of a row at once
                x = TensorType(dtype, (4, 5, 8))
                yield infer(op, f"packs_{dtype}", [TensorType("bool", shape), x, TensorType(dtype, ())], {})
    if op in ("Add", "Mul"):
        for dtype in dtypes_of(op):
            yield call(op, dtype, (2, 3, 16), (16,))
        yield call(op, "float16", (2, 3, 4, 6), (3, 1, 1))
        yield call(op, "float32", (2, 1, 1, 8), (3, 1, 8))
        yield call(op, "float32", (3, 4), (4, 3, 1))
    if op in ("Max", "Sum"):
        yield call(op, "float32", (2, 3), (3,), (2, 1))
    if op == "Clip":
        yield call(op, "float32", (7,), min=-0.5, max=0.5)
        yield call(op, "int32", (7,), None, ())
    if op == "Pow":
        yield infer(op, "mixed", [TensorType("float32", (4,)), TensorType("int64", (4,))], {})
        yield infer(op, "integers", [TensorType("int32", (4,)), TensorType("float32", (4,))], {})
    if op == "Mod":
        yield call(op, "float32", (9,), (9,), fmod=1)
        yield call(op, "int32", (9,), (9,), fmod=1)
    if op == "Gelu":
        yield call(op, "float32", (9,), approximate="tanh")
    if op == "Cast":
        for source in DTYPES:
            for to in ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32", "uint8", "bool"):
                yield call(op, source, (17,), to=to)
        yield call(op, "float32", (17,), to="float8_e4m3fn", saturate=0)
        yield call(op, "float32", (17,), to="float8_e5m2", saturate=0)
    yield (
        call(op, dtypes_of(op)[0], *[(0, 3)] * count, **attributes)
        if op not in ("Clip", "Where")
        else call("Relu", "float32", (0,))
    )


def _views(op: str) -> Iterator[OpCall]:
    if op == "Dropout":
        yield call(op, "float16", (5, 7), outputs=2)
    elif op == "BitCast":
        yield call(op, "float16", (5, 7), to="int16")
    else:
        extra = {"Reshape": [known(6)], "Unsqueeze": [known(0)], "Squeeze": [known(0)]}.get(op, [])
        yield call(op, "float32", (1, 2, 3), *extra)


def _generators(op: str) -> Iterator[OpCall]:
    if op == "Constant":
        yield call(op, "", value_floats=[0.5, float("inf")])
        yield call(op, "", value=list(range(300)), shape=[300], dtype="int64")
        yield call(op, "", value=[True, False], shape=[2], dtype="bool")
    elif op == "ConstantOfShape":
        for dtype in CLASSES:
            yield call(op, "int64", known(3, 50), value=1, dtype=dtype)
    elif op == "EyeLike":
        for dtype in dtypes_of(op):
            yield call(op, dtype, (5, 7), k=-1)
            yield call(op, dtype, (5, 7), k=2, dtype="float16")
    elif op == "Range":
        for dtype in ("float32", "int64", "float16", "int16"):
            yield call(op, dtype, *(TensorType(dtype, (), (v,)) for v in (3, 40, 2)))
    else:
        yield call(op, "float32", (3, 4))


def _movement(op: str) -> Iterator[OpCall]:
    yield from _MOVEMENT[op]()


def _transposes() -> Iterator[OpCall]:
    for dtype in CLASSES:
        yield call("Transpose", dtype, (33, 70))
    yield call("Transpose", "float32", (3, 20, 40), perm=[0, 2, 1])
    yield call("Transpose", "float16", (2, 9, 4, 8), perm=[0, 2, 1, 3])
    yield call("Transpose", "float32", (2, 3, 4, 5, 2), perm=[4, 1, 3, 0, 2])
    yield call("Transpose", "float32", (0, 4))
    yield call("Transpose", "float32", ())


def _concats() -> Iterator[OpCall]:
    yield call("Concat", "float32", (2, 3), (2, 5), (2, 0), axis=1)
    yield call("Concat", "bool", (2, 3), (1, 3), axis=0)
    yield call("Concat", "float16", (2, 4, 8), (2, 4, 16), axis=-1)


def _slices() -> Iterator[OpCall]:
    x = (10, 20)
    yield call("Slice", "float32", x, known(8, 19), known(-11, 3), known(0, 1), known(-1, -2))
    yield call("Slice", "int64", x, known(2, 4), known(9, 12))
    yield call("Slice", "float16", x, known(3), known(3), known(1))


def _splits() -> Iterator[OpCall]:
    yield call("Split", "float32", (6, 8), outputs=2, axis=1)
    yield call("Split", "uint8", (7, 3), known(2, 5), outputs=2)
    yield call("Split", "float64", (7, 3), outputs=3, axis=0, num_outputs=3)


def _gathers() -> Iterator[OpCall]:
    for dtype in ("float32", "float16", "bool", "float64"):
        for axis in (0, 1):
            indices = TensorType("int64" if axis else "int32", (2, 3))
            yield infer("Gather", f"gather_{dtype}", [TensorType(dtype, (6, 8)), indices], {"axis": axis})
    yield infer("Gather", "scalar", [TensorType("float32", (6, 5)), TensorType("int64", ())], {})


def _expands() -> Iterator[OpCall]:
    yield call("Expand", "float32", (3, 1), known(2, 3, 4))
    yield call("Expand", "float16", (), known(3, 3))


def _tiles() -> Iterator[OpCall]:
    yield call("Tile", "float32", (2, 3), known(3, 2))
    yield call("Tile", "int64", (2, 3), known(1, 1))


def _pads() -> Iterator[OpCall]:
    for mode in ("constant", "edge", "wrap", "reflect"):
        for dtype in ("float32", "float16", "int64"):
            yield call("Pad", dtype, (2, 5, 6), known(0, 1, 2, 0, 3, 1), mode=mode)
            yield call("Pad", dtype, (2, 5, 6), known(0, -2, 2, 0, 2, -3), mode=mode)  # cropped, then padded
    yield call("Pad", "float32", (5, 6), known(1, 0, -1, 2), ())
    yield call("Pad", "float32", (5, 6), pads=[1, 1, 1, 1], value=2.5)


_MOVEMENT = {
    "Transpose": _transposes,
    "Concat": _concats,
    "Slice": _slices,
    "Split": _splits,
    "Gather": _gathers,
    "Expand": _expands,
    "Tile": _tiles,
    "Pad": _pads,
}


def _reduction(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        if op == "LayerNormalization":
            yield call(op, dtype, (3, 5, 40), (40,), (40,), outputs=3)
        elif op.startswith("Reduce"):
            yield call(op, dtype, (4, 5, 6), axes=[0, 2])
        else:
            yield call(op, dtype, (3, 20, 5), axis=1)
    yield from _more_reductions(op)


def _more_reductions(op: str) -> Iterator[OpCall]:
    if op == "LayerNormalization":
        yield call(op, "float32", (2, 4, 6), (4, 1), axis=1)
        yield call(op, "float32", (2, 300), (300,), None)
        yield call(op, "float32", (2, 4_200), (4_200,), (4_200,))
        yield call(op, "float32", (5, 3), (3,), ())
        return
    axis = {"axes": [1]} if op.startswith("Reduce") else {"axis": 1}
    yield call(op, "float32", (3, 2000), **axis)
    yield call(op, "float32", (2, 4_200), **axis)
    yield call(op, "float32", (2, 20, 40), **axis)
    yield call(op, "float32", (3, 7), **axis)
    if op.startswith("Reduce"):
        yield call(op, "float32", (9_000,), keepdims=0)
        yield call(op, "float32", (700, 3), axes=[0])
        yield call(op, "float32", ())
        yield call(op, "float32", (4, 5), known(), noop_with_empty_axes=1)
    if op.startswith("Arg"):
        yield call(op, "float32", (4, 50), axis=1, select_last_index=1, keepdims=0)


def _linear(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        yield call(op, dtype, (17, 33), (33, 70))
    if op == "Gemm":
        yield call(op, "float32", (33, 17), (70, 33), (70,), transA=1, transB=1, alpha=0.5, beta=2.0)
        yield call(op, "float16", (17, 33), (70, 33), (17, 1), transB=1)
        yield call(op, "int32", (5, 6), (6, 7), (), alpha=0.5, beta=2.0)
        yield turned(call(op, "float32", (17, 33), (70, 33), (70,), transB=1), 0, 1)
        yield turned(call(op, "float64", (33, 17), (33, 70), transA=1, alpha=0.5), 0, 1)
        yield call(op, "float32", (4, 0), (0, 5), (5,))
        return
    yield call(op, "float32", (2, 3, 9, 8), (3, 8, 10))
    yield turned(call(op, "float32", (1, 40), (40, 300)), 1)
    yield turned(call(op, "float16", (33, 40), (40, 70)), 0, 1)
    yield turned(call(op, "float32", (2, 3, 9, 8), (3, 8, 10)), 0, 1)
    yield turned(call(op, "float64", (2, 3, 9, 8), (8, 10)), 0)
    yield turned(call(op, "bfloat16", (2, 3, 9, 8), (8, 10)), 1)
    yield turned(call(op, "int64", (2, 1, 9, 8), (3, 8, 1)), 0, 1)
    yield call(op, "float16", (2, 1, 9, 8), (3, 8, 10))
    yield call(op, "bfloat16", (150, 40), (40, 140))
    yield call(op, "float32", (2, 3, 9, 8), (8, 10))
    yield call(op, "float32", (8,), (8, 10))
    yield call(op, "float32", (2, 9, 8), (8,))
    yield call(op, "float32", (8,), (8,))
    yield call(op, "float32", (4, 0), (0, 5))
    yield call(op, "float32", (40, 300), (300, 5))


def _nn(op: str) -> Iterator[OpCall]:
    yield from (_convolutions() if op == "Conv" else _pools(op))


def _convolutions() -> Iterator[OpCall]:
    for dtype in dtypes_of("Conv"):
        yield call("Conv", dtype, (2, 4, 9, 10), (16, 4, 3, 3), (16,), pads=[1, 1, 1, 1], strides=[2, 1])
        yield call("Conv", dtype, (2, 4, 9, 10), (4, 1, 3, 3), group=4, auto_pad="SAME_UPPER")
    yield call("Conv", "float32", (2, 6, 12), (18, 3, 3), group=2, dilations=[2])
    yield call("Conv", "float16", (1, 3, 6, 5, 4), (8, 3, 2, 2, 2), auto_pad="SAME_LOWER", strides=[2, 2, 1])
    yield call("Conv", "float32", (2, 5, 4, 4), (7, 5, 1, 1), (7,))
    yield call("Conv", "float32", (0, 5, 4, 4), (7, 5, 1, 1))


def _pools(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        if op == "BatchNormalization":
            yield call(op, dtype, (2, 3, 4, 5), *[(3,)] * 4)
        elif op.startswith("Global"):
            yield call(op, dtype, (2, 3, 6, 7))
        else:
            yield call(op, dtype, (2, 3, 8, 9), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 0])
    if op == "BatchNormalization":
        yield infer(op, "mixed", [TensorType("float16", (2, 3, 4))] + [TensorType("float32", (3,))] * 4, {})
        yield call(op, "float32", (5,), *[(1,)] * 4)
        for dtype in ("float32", "float16"):
            yield call(op, dtype, (4, 3, 4, 5), *[(3,)] * 4, outputs=3, training_mode=1)
        yield call(op, "float32", (5,), *[(1,)] * 4, outputs=3, training_mode=1)
    if op == "MaxPool":
        shape = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
        yield call(op, "float32", (1, 2, 6, 8), outputs=2, **shape)
        yield call(op, "float32", (1, 2, 6, 8), outputs=2, storage_order=1, pads=[1, 1, 1, 1], **shape)
        yield call(op, "float32", (1, 2, 12), kernel_shape=[3], dilations=[2])
    if op.endswith("LpPool"):
        window = {} if op.startswith("Global") else {"kernel_shape": [2, 3], "dilations": [2, 1]}
        for p in (1, 3):
            yield call(op, "float32", (2, 3, 8, 9), p=p, **window)
    if op == "AveragePool":
        shape = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
        yield call(op, "float32", (1, 2, 6, 8), count_include_pad=1, pads=[1, 1, 1, 1], **shape)
        yield call(op, "float32", (1, 2, 5, 4, 4), kernel_shape=[2, 2, 2])


_FAMILIES = {
    "elementwise": _elementwise,
    "views": _views,
    "generators": _generators,
    "movement": _movement,
    "reduction": _reduction,
    "linear": _linear,
    "nn": _nn,
    **index_calls.FAMILIES,
    **layer_calls.FAMILIES,
    **training_calls.FAMILIES,
    **quantization_calls.FAMILIES,
    **attention_calls.FAMILIES,
    **random_calls.FAMILIES,
    **decoding_calls.FAMILIES,
    **recurrent_calls.FAMILIES,
}
