"""Calls of every builtin operator, small enough to check by element, for every dtype class and special shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import OpCall, TensorType
from tests.runtime.kernels.cuda import attention_calls, quantization_calls, recurrent_calls, training_calls

CLASSES = ("float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8", "bool", "float8_e4m3fn")
Ints = tuple[int, ...]


def known(*values: int) -> TensorType:
    """An int64 vector whose elements are known before the run."""
    return TensorType("int64", (len(values),), values)


def _call(op: str, dtype: str, /, *shapes: Ints | TensorType | None, outputs: int = 1, **attributes: Any) -> OpCall:
    types = [TensorType(dtype, shape) if isinstance(shape, tuple) else shape for shape in shapes]
    return infer(op, f"{op}_{dtype}", types, attributes, outputs)


def dtypes_of(op: str) -> list[str]:
    """The dtype classes that `op` takes as input 0."""
    return [dtype for dtype in CLASSES if dtype in all_schemas()[op].dtypes]


def calls_of(op: str) -> Iterator[OpCall]:
    """Representative calls of `op`: each dtype class, and each special road of its kernel once."""
    family = all_schemas()[op].family
    yield from _FAMILIES[family](op)


def _elementwise(op: str) -> Iterator[OpCall]:
    schema = all_schemas()[op]
    attributes = {"BitShift": {"direction": "LEFT"}, "Cast": {"to": "float32"}}.get(op, {})
    count = max(schema.inputs[0], min(schema.inputs[1], 2))
    for dtype in dtypes_of(op):
        if op == "Where":
            continue
        if op == "Clip":
            yield _call(op, dtype, (3, 37), (), ())
            continue
        yield _call(op, dtype, *[(3, 37)] * count, **attributes)
        if count == 2 and op != "CastLike":
            yield _call(op, dtype, (2, 3, 5), (3, 1), **attributes)
    if op == "Where":
        for dtype in ("float32", "float16", "int64", "bool", "float8_e5m2"):
            x = TensorType(dtype, (4, 5))
            yield infer(op, f"where_{dtype}", [TensorType("bool", (4, 1)), x, TensorType(dtype, ())], {})
    if op in ("Max", "Sum"):
        yield _call(op, "float32", (2, 3), (3,), (2, 1))
    if op == "Clip":
        yield _call(op, "float32", (7,), min=-0.5, max=0.5)
        yield _call(op, "int32", (7,), None, ())
    if op == "Pow":
        yield infer(op, "mixed", [TensorType("float32", (4,)), TensorType("int64", (4,))], {})
        yield infer(op, "integers", [TensorType("int32", (4,)), TensorType("float32", (4,))], {})
    if op == "Mod":
        yield _call(op, "float32", (9,), (9,), fmod=1)
        yield _call(op, "int32", (9,), (9,), fmod=1)
    if op == "Gelu":
        yield _call(op, "float32", (9,), approximate="tanh")
    if op == "Cast":
        for source in DTYPES:
            for to in ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32", "uint8", "bool"):
                yield _call(op, source, (17,), to=to)
        yield _call(op, "float32", (17,), to="float8_e4m3fn", saturate=0)
        yield _call(op, "float32", (17,), to="float8_e5m2", saturate=0)
    yield (
        _call(op, dtypes_of(op)[0], *[(0, 3)] * count, **attributes)
        if op not in ("Clip", "Where")
        else _call("Relu", "float32", (0,))
    )


def _views(op: str) -> Iterator[OpCall]:
    if op == "Dropout":
        yield _call(op, "float16", (5, 7), outputs=2)
    elif op == "BitCast":
        yield _call(op, "float16", (5, 7), to="int16")
    else:
        extra = {"Reshape": [known(6)], "Unsqueeze": [known(0)], "Squeeze": [known(0)]}.get(op, [])
        yield _call(op, "float32", (1, 2, 3), *extra)


def _generators(op: str) -> Iterator[OpCall]:
    if op == "Constant":
        yield _call(op, "", value_floats=[0.5, float("inf")])
        yield _call(op, "", value=list(range(300)), shape=[300], dtype="int64")
        yield _call(op, "", value=[True, False], shape=[2], dtype="bool")
    elif op == "ConstantOfShape":
        for dtype in CLASSES:
            yield _call(op, "int64", known(3, 50), value=1, dtype=dtype)
    elif op == "EyeLike":
        for dtype in dtypes_of(op):
            yield _call(op, dtype, (5, 7), k=-1)
            yield _call(op, dtype, (5, 7), k=2, dtype="float16")
    elif op == "Range":
        for dtype in ("float32", "int64", "float16", "int16"):
            yield _call(op, dtype, *(TensorType(dtype, (), (v,)) for v in (3, 40, 2)))
    else:
        yield _call(op, "float32", (3, 4))


def _movement(op: str) -> Iterator[OpCall]:
    yield from _MOVEMENT[op]()


def _transposes() -> Iterator[OpCall]:
    for dtype in CLASSES:
        yield _call("Transpose", dtype, (33, 70))
    yield _call("Transpose", "float32", (3, 20, 40), perm=[0, 2, 1])
    yield _call("Transpose", "float16", (2, 9, 4, 8), perm=[0, 2, 1, 3])
    yield _call("Transpose", "float32", (2, 3, 4, 5, 2), perm=[4, 1, 3, 0, 2])
    yield _call("Transpose", "float32", (0, 4))
    yield _call("Transpose", "float32", ())


def _concats() -> Iterator[OpCall]:
    yield _call("Concat", "float32", (2, 3), (2, 5), (2, 0), axis=1)
    yield _call("Concat", "bool", (2, 3), (1, 3), axis=0)
    yield _call("Concat", "float16", (2, 4, 8), (2, 4, 16), axis=-1)


def _slices() -> Iterator[OpCall]:
    x = (10, 20)
    yield _call("Slice", "float32", x, known(8, 19), known(-11, 3), known(0, 1), known(-1, -2))
    yield _call("Slice", "int64", x, known(2, 4), known(9, 12))
    yield _call("Slice", "float16", x, known(3), known(3), known(1))


def _splits() -> Iterator[OpCall]:
    yield _call("Split", "float32", (6, 8), outputs=2, axis=1)
    yield _call("Split", "uint8", (7, 3), known(2, 5), outputs=2)
    yield _call("Split", "float64", (7, 3), outputs=3, axis=0, num_outputs=3)


def _gathers() -> Iterator[OpCall]:
    for dtype in ("float32", "float16", "bool", "float64"):
        for axis in (0, 1):
            indices = TensorType("int64" if axis else "int32", (2, 3))
            yield infer("Gather", f"gather_{dtype}", [TensorType(dtype, (6, 8)), indices], {"axis": axis})
    yield infer("Gather", "scalar", [TensorType("float32", (6, 5)), TensorType("int64", ())], {})


def _expands() -> Iterator[OpCall]:
    yield _call("Expand", "float32", (3, 1), known(2, 3, 4))
    yield _call("Expand", "float16", (), known(3, 3))


def _tiles() -> Iterator[OpCall]:
    yield _call("Tile", "float32", (2, 3), known(3, 2))
    yield _call("Tile", "int64", (2, 3), known(1, 1))


def _pads() -> Iterator[OpCall]:
    for mode in ("constant", "edge", "wrap", "reflect"):
        for dtype in ("float32", "float16", "int64"):
            yield _call("Pad", dtype, (2, 5, 6), known(0, 1, 2, 0, 3, 1), mode=mode)
    yield _call("Pad", "float32", (5, 6), known(1, 0, -1, 2), ())
    yield _call("Pad", "float32", (5, 6), pads=[1, 1, 1, 1], value=2.5)


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
            yield _call(op, dtype, (3, 5, 40), (40,), (40,), outputs=3)
        elif op.startswith("Reduce"):
            yield _call(op, dtype, (4, 5, 6), axes=[0, 2])
        else:
            yield _call(op, dtype, (3, 20, 5), axis=1)
    yield from _more_reductions(op)


def _more_reductions(op: str) -> Iterator[OpCall]:
    if op == "LayerNormalization":
        yield _call(op, "float32", (2, 4, 6), (4, 1), axis=1)
        yield _call(op, "float32", (2, 1500), (1500,), None)
        yield _call(op, "float32", (5, 3), (3,), ())
        return
    axis = {"axes": [1]} if op.startswith("Reduce") else {"axis": 1}
    yield _call(op, "float32", (3, 2000), **axis)
    yield _call(op, "float32", (2, 20, 40), **axis)
    yield _call(op, "float32", (3, 7), **axis)
    if op.startswith("Reduce"):
        yield _call(op, "float32", (9_000,), keepdims=0)
        yield _call(op, "float32", (700, 3), axes=[0])
        yield _call(op, "float32", ())
        yield _call(op, "float32", (4, 5), known(), noop_with_empty_axes=1)
    if op.startswith("Arg"):
        yield _call(op, "float32", (4, 50), axis=1, select_last_index=1, keepdims=0)


def _linear(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        yield _call(op, dtype, (17, 33), (33, 70))
    if op == "Gemm":
        yield _call(op, "float32", (33, 17), (70, 33), (70,), transA=1, transB=1, alpha=0.5, beta=2.0)
        yield _call(op, "float16", (17, 33), (70, 33), (17, 1), transB=1)
        yield _call(op, "int32", (5, 6), (6, 7), (), alpha=0.5, beta=2.0)
        yield _call(op, "float32", (4, 0), (0, 5), (5,))
        return
    yield _call(op, "float32", (2, 3, 9, 8), (3, 8, 10))
    yield _call(op, "float16", (2, 1, 9, 8), (3, 8, 10))
    yield _call(op, "bfloat16", (150, 40), (40, 140))
    yield _call(op, "float32", (2, 3, 9, 8), (8, 10))
    yield _call(op, "float32", (8,), (8, 10))
    yield _call(op, "float32", (2, 9, 8), (8,))
    yield _call(op, "float32", (8,), (8,))
    yield _call(op, "float32", (4, 0), (0, 5))
    yield _call(op, "float32", (40, 300), (300, 5))


def _nn(op: str) -> Iterator[OpCall]:
    yield from (_convolutions() if op == "Conv" else _pools(op))


def _convolutions() -> Iterator[OpCall]:
    for dtype in dtypes_of("Conv"):
        yield _call("Conv", dtype, (2, 4, 9, 10), (16, 4, 3, 3), (16,), pads=[1, 1, 1, 1], strides=[2, 1])
        yield _call("Conv", dtype, (2, 4, 9, 10), (4, 1, 3, 3), group=4, auto_pad="SAME_UPPER")
    yield _call("Conv", "float32", (2, 6, 12), (18, 3, 3), group=2, dilations=[2])
    yield _call("Conv", "float16", (1, 3, 6, 5, 4), (8, 3, 2, 2, 2), auto_pad="SAME_LOWER", strides=[2, 2, 1])
    yield _call("Conv", "float32", (2, 5, 4, 4), (7, 5, 1, 1), (7,))
    yield _call("Conv", "float32", (0, 5, 4, 4), (7, 5, 1, 1))


def _pools(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        if op == "BatchNormalization":
            yield _call(op, dtype, (2, 3, 4, 5), *[(3,)] * 4)
        elif op.startswith("Global"):
            yield _call(op, dtype, (2, 3, 6, 7))
        else:
            yield _call(op, dtype, (2, 3, 8, 9), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 0])
    if op == "BatchNormalization":
        yield infer(op, "mixed", [TensorType("float16", (2, 3, 4))] + [TensorType("float32", (3,))] * 4, {})
        yield _call(op, "float32", (5,), *[(1,)] * 4)
        for dtype in ("float32", "float16"):
            yield _call(op, dtype, (4, 3, 4, 5), *[(3,)] * 4, outputs=3, training_mode=1)
        yield _call(op, "float32", (5,), *[(1,)] * 4, outputs=3, training_mode=1)
    if op == "MaxPool":
        shape = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
        yield _call(op, "float32", (1, 2, 6, 8), outputs=2, **shape)
        yield _call(op, "float32", (1, 2, 6, 8), outputs=2, storage_order=1, pads=[1, 1, 1, 1], **shape)
        yield _call(op, "float32", (1, 2, 12), kernel_shape=[3], dilations=[2])
    if op.endswith("LpPool"):
        window = {} if op.startswith("Global") else {"kernel_shape": [2, 3], "dilations": [2, 1]}
        for p in (1, 3):
            yield _call(op, "float32", (2, 3, 8, 9), p=p, **window)
    if op == "AveragePool":
        shape = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
        yield _call(op, "float32", (1, 2, 6, 8), count_include_pad=1, pads=[1, 1, 1, 1], **shape)
        yield _call(op, "float32", (1, 2, 5, 4, 4), kernel_shape=[2, 2, 2])


def _selection(op: str) -> Iterator[OpCall]:
    if op == "NonMaxSuppression":
        yield _call(op, "float32", (1, 6, 4), (1, 2, 6))
    elif op == "Compress":
        flags = [TensorType("bool", (n,), tuple(i % 3 == 1 for i in range(n))) for n in (4, 6)]
        yield _call(op, "float32", (2, 4, 6), flags[0], axis=1)
        yield _call(op, "float16", (2, 4, 6), flags[1], axis=-1)
        yield _call(op, "int8", (5, 3), flags[1])
        yield _call(op, "int64", known(4, 0, 6, 5), flags[0])
    else:
        for value in ((3, 0, 1, 3, 0, 2), (0, 0)):
            x = TensorType("int64", (2, len(value) // 2), value)
            yield infer(op, "known", [x], {}, 4 if op == "Unique" else 1)


def _indexing(op: str) -> Iterator[OpCall]:
    if op == "OneHot":
        for dtype in ("int64", "float16", "uint8", "float32"):
            values = TensorType("bool" if dtype == "uint8" else dtype, (2,))
            yield _call(op, dtype, (3, 4), known(5), values, axis=1)
        yield _call(op, "int32", (), known(5), TensorType("float32", (2,)))
    elif op in ("GatherND", "ScatterND"):
        yield from _tuples(op)
    else:
        yield from _lines(op)


def _lines(op: str) -> Iterator[OpCall]:
    """Calls of GatherElements and ScatterElements."""
    shape, part = (4, 6, 5), (3, 4, 5)
    for dtype in dtypes_of(op):
        types = [TensorType(dtype, shape), TensorType("int64", part)]
        types += [] if op == "GatherElements" else [TensorType(dtype, part)]
        yield infer(op, f"lines_{dtype}", types, {"axis": 1})
        for reduction in ("add", "mul", "max", "min") if op == "ScatterElements" else ():
            if dtype.startswith("float8"):
                continue  # its few digits differ by the order of the sums
            yield infer(op, f"{reduction}_{dtype}", types, {"axis": 1, "reduction": reduction})
    indices = TensorType("int32", (9,))
    data = [TensorType("float32", (20,)), indices, TensorType("float32", (9,))]
    yield infer(op, "one_axis", data[: all_schemas()[op].inputs[0]], {})


def _tuples(op: str) -> Iterator[OpCall]:
    """Calls of GatherND and ScatterND."""
    for dtype in dtypes_of(op):
        for depth, rest in ((1, (4, 6)), (3, ())):
            indices = TensorType("int64", (2, 3, depth))
            types = [TensorType(dtype, (9, 4, 6)), indices]
            if op == "GatherND":
                yield infer(op, f"tuples_{dtype}", types, {})
                continue
            types.append(TensorType(dtype, (2, 3, *rest)))
            for reduction in ("none", "add", "mul", "max", "min"):
                if reduction == "none" or not dtype.startswith("float8"):
                    yield infer(op, f"{reduction}_{dtype}", types, {"reduction": reduction})
    if op == "GatherND":
        data, indices = TensorType("float16", (2, 3, 5, 2)), TensorType("int64", (2, 3, 4, 1))
        yield infer(op, "batches", [data, indices], {"batch_dims": 2})


def _scans(op: str) -> Iterator[OpCall]:
    if op == "TopK":
        for dtype in dtypes_of(op):
            yield _call(op, dtype, (3, 20, 5), known(7), outputs=2, axis=1)
            yield _call(op, dtype, (2, 33), known(33), outputs=2, largest=0)
        yield _call(op, "float32", (2, 9_000), known(50), outputs=2)
        yield _call(op, "float16", (5_000, 2), known(3_000), outputs=2, axis=0, largest=0)
        yield _call(op, "float32", (3, 4), known(0), outputs=2)
        return
    for dtype in dtypes_of(op):
        shape = (3, 9, 5) if op == "CumSum" else (3, 5, 4)
        yield _call(op, dtype, shape, known(1))
        yield _call(op, dtype, shape, known(-1), exclusive=1, reverse=1)
    yield _call(op, "float32", (3, 100), known(1), reverse=1)
    yield _call(op, "float32", (2, 1_500), known(1), exclusive=1)
    yield _call(op, "float32", (0, 4), known(0))


def _rearrangement(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        match op:
            case "ReverseSequence":
                yield _call(op, dtype, (4, 3, 2), TensorType("int64", (3,)))
                yield _call(op, dtype, (3, 4, 2), TensorType("int64", (3,)), batch_axis=0, time_axis=1)
            case "Trilu":
                yield _call(op, dtype, (2, 5, 7), known(1))
                yield _call(op, dtype, (5, 4), upper=0)
            case "CenterCropPad":
                yield _call(op, dtype, (5, 4, 7), known(2, 7, 8))
                yield _call(op, dtype, (5, 4, 7), known(8, 6), axes=[-1, 0])
            case _:
                for mode in ("DCR", "CRD"):
                    yield _call(op, dtype, (2, 12, 4, 6), blocksize=2, mode=mode)
    if op == "Trilu":
        yield _call(op, "float32", (3, 8), known(-2), upper=0)
        yield _call(op, "float32", (3, 8), known(-2))


def _normalization(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        match op:
            case "InstanceNormalization":
                yield _call(op, dtype, (2, 3, 5, 7), (3,), (3,))
            case "GroupNormalization":
                yield _call(op, dtype, (2, 6, 5, 7), (6,), (6,), num_groups=2)
            case "RMSNormalization":
                yield _call(op, dtype, (3, 5, 40), (40,))
            case "LRN":
                yield _call(op, dtype, (2, 7, 3, 2), size=4, alpha=0.5, beta=0.7)
            case _:
                yield _call(op, dtype, (2, 5, 4, 3))
    match op:
        case "InstanceNormalization":
            yield _call(op, "float32", (1, 2, 40, 40), (2,), (2,))
        case "GroupNormalization":
            yield _call(op, "float32", (2, 6, 5), (3,), (3,), num_groups=3)
        case "RMSNormalization":
            yield _call(op, "float32", (2, 4, 6), (4, 1), axis=1)
            yield _call(op, "float32", (2, 1_500), (1_500,))
            half = TensorType("float16", (3, 8))
            yield infer(op, "mixed", [half, TensorType("float32", (8,))], {})
        case "LpNormalization":
            yield _call(op, "float32", (4, 6), p=1, axis=0)
        case "MeanVarianceNormalization":
            yield _call(op, "float32", (3_000, 2), axes=[0])
            yield _call(op, "float32", (3, 4), axes=[1])


def _resampling(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        scales = TensorType("float32", (4,), (1.0, 1.0, 2.0, 3.0))
        yield _call(op, dtype, (2, 3, 4, 5), *([scales] if op == "Upsample" else [None, scales]))
        if op == "Resize" and dtype != "bool":
            for mode in ("linear", "cubic"):
                yield _call(op, dtype, (2, 4, 5), None, None, known(7, 4), axes=[1, 2], mode=mode)
    if op == "Upsample":
        yield _call(op, "float32", (1, 1, 4, 5), scales, mode="linear")
        return
    sizes, transform = known(7, 4), "coordinate_transformation_mode"
    for rule in ("half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"):
        yield _call(op, "float32", (5, 6), None, None, sizes, mode="linear", **{transform: rule})
    for rounding in ("round_prefer_ceil", "floor", "ceil"):
        yield _call(op, "float32", (5, 6), None, None, sizes, nearest_mode=rounding)
    region = TensorType("float32", (4,), (0.4, -0.5, 1.2, 0.7))
    for mode in ("nearest", "linear", "cubic"):
        crop = {transform: "tf_crop_and_resize", "mode": mode, "extrapolation_value": 9.0}
        yield _call(op, "float32", (5, 6), region, None, sizes, **crop)
    for mode in ("linear", "cubic"):
        yield _call(op, "float32", (9, 11), None, None, known(4, 3), mode=mode, antialias=1)
        yield _call(op, "uint8", (9, 11), None, None, known(4, 13), mode=mode, antialias=1, exclude_outside=1)
    yield _call(op, "float32", (4, 5, 6), None, None, known(8, 5, 3), mode="cubic", exclude_outside=1)
    yield _call(op, "float32", (9, 6), None, None, sizes, mode="linear", keep_aspect_ratio_policy="not_larger")


def _transposed(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        match op:
            case "ConvTranspose":
                yield _call(op, dtype, (2, 4, 5, 6), (4, 9, 3, 3), (9,), strides=[2, 1], pads=[1, 0, 1, 1])
                yield _call(op, dtype, (2, 6, 5, 6), (6, 2, 2, 2), group=3, strides=[2, 2], output_padding=[1, 0])
            case "Col2Im":
                yield _call(op, dtype, (2, 12, 12), known(4, 5), known(2, 2))
                more = {"pads": [1, 0, 0, 1], "strides": [2, 1], "dilations": [1, 2]}
                yield _call(op, dtype, (1, 6, 12), known(4, 5), known(3, 1), **more)
            case "MaxUnpool":
                indices = TensorType("int64", (1, 2, 3, 4))
                yield _call(op, dtype, (1, 2, 3, 4), indices, kernel_shape=[2, 2], strides=[2, 2])
    if op == "MaxUnpool":
        yield _call(op, "float32", (1, 2, 3, 4), indices, known(1, 2, 8, 9), kernel_shape=[2, 2], strides=[2, 2])
    if op == "ConvTranspose":
        yield _call(op, "float32", (1, 3, 7), (3, 8, 4), strides=[3], dilations=[2], auto_pad="SAME_UPPER")
        yield _call(op, "float32", (1, 3, 7), (3, 8, 4), strides=[3], output_shape=[20])
        yield _call(op, "float32", (1, 3, 7), (3, 8, 2), strides=[3], output_shape=[25])
        yield _call(op, "float16", (1, 4, 3, 4, 2), (4, 8, 2, 2, 2), strides=[2, 2, 2])


def _contraction(op: str) -> Iterator[OpCall]:
    if op == "Det":
        for dtype in dtypes_of(op):
            yield _call(op, dtype, (2, 5, 4, 4))
        yield _call(op, "float32", (1, 1))
        return
    for dtype in dtypes_of(op):
        yield _call(op, dtype, (2, 3, 7, 5), (2, 3, 6, 5), equation="bhid,bhjd->bhij")
        yield _call(op, dtype, (4, 5), equation="ij->ji")
    for equation, shapes in (
        ("bhij,bhjd->bihd", ((2, 3, 4, 5), (2, 3, 5, 6))),
        ("ij,jk->ki", ((3, 4), (4, 5))),
        ("iajb,bja->i", ((3, 2, 4, 5), (5, 4, 2))),
        ("ij,jk,kl->il", ((3, 4), (4, 5), (5, 6))),
        ("ij,j,i->", ((3, 4), (4,), (3,))),
        ("...ij,...jk->...ik", ((2, 1, 3, 4), (5, 4, 6))),
        ("bii->bi", ((2, 3, 3),)),
        ("ii,ij->j", ((3, 3), (3, 4))),
        ("i,j->ij", ((3,), (4,))),
        ("ij->", ((3, 4),)),
        ("bhij,bhjd->bihd", ((1, 3, 4, 5), (1, 3, 5, 1))),
        ("ij,jk->ik", ((1, 4), (4, 5))),
        ("ij,jk->ik", ((3, 0), (0, 5))),
        ("ijk,jk->j", ((2, 3, 4), (3, 4))),
    ):
        yield _call(op, "float32", *shapes, equation=equation)


def _sampling(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        match op:
            case "GridSample":
                where = TensorType(dtype if DTYPES[dtype].kind == "float" else "float32", (2, 3, 4, 2))
                yield _call(op, dtype, (2, 3, 5, 6), where, mode="nearest")
                if dtype != "bool":
                    yield _call(op, dtype, (2, 3, 5, 6), where)
            case "AffineGrid":
                yield _call(op, dtype, (2, 2, 3), known(2, 3, 4, 5))
            case "RoiAlign":
                more = {"output_height": 2, "output_width": 3, "spatial_scale": 3.0}
                images = TensorType("int64", (4,))
                yield _call(op, dtype, (2, 3, 7, 6), (4, 4), images, **more)
                yield _call(op, dtype, (2, 3, 7, 6), (4, 4), images, mode="max", sampling_ratio=2, **more)
            case "MaxRoiPool":
                yield _call(op, dtype, (1, 3, 7, 6), (4, 5), pooled_shape=[2, 3], spatial_scale=6.0)
            case "DeformConv":
                yield _call(op, dtype, (2, 4, 5, 6), (6, 2, 2, 2), (2, 16, 4, 5), (6,), group=2, offset_group=2)
    yield from _more_sampling(op)


def _more_sampling(op: str) -> Iterator[OpCall]:
    if op == "GridSample":
        for padding in ("zeros", "border", "reflection"):
            for mode in ("nearest", "linear", "cubic"):
                more = {"padding_mode": padding, "mode": mode, "align_corners": int(mode == "linear")}
                yield _call(op, "float32", (2, 3, 5, 6), (2, 3, 4, 2), **more)
        yield _call(op, "float32", (1, 2, 3, 4, 5), (1, 2, 3, 2, 3))
        yield _call(op, "float32", (1, 2, 7), (1, 4, 1), mode="cubic")
    if op == "AffineGrid":
        yield _call(op, "float32", (2, 3, 4), known(2, 1, 3, 4, 5), align_corners=1)
    if op == "RoiAlign":
        regions, images = (4, 4), TensorType("int64", (4,))
        yield _call(op, "float32", (2, 3, 7, 6), regions, images, coordinate_transformation_mode="output_half_pixel")
    if op == "DeformConv":
        shapes = ((1, 2, 5, 6), (3, 2, 3, 2), (1, 12, 5, 5))
        yield _call(op, "float32", *shapes, None, (1, 6, 5, 5), pads=[1, 0, 1, 1], dilations=[1, 2])


def _signal(op: str) -> Iterator[OpCall]:
    if op == "DFT":
        for dtype in dtypes_of(op):
            yield _call(op, dtype, (2, 12, 1), onesided=1)
            yield _call(op, dtype, (2, 9, 3, 2), known(11), known(1), inverse=1)
        yield _call(op, "float32", (2, 9, 2), known(6))
        yield _call(op, "float32", (2, 7, 2), inverse=1, onesided=1)
        yield _call(op, "float32", (2, 5, 2), known(9), inverse=1, onesided=1)
    elif op == "STFT":
        step = TensorType("int64", (), (3,))
        for dtype in dtypes_of(op):
            yield _call(op, dtype, (2, 30, 1), step, (8,))
        yield _call(op, "float32", (1, 30, 2), step, None, TensorType("int64", (), (7,)), onesided=0)
    elif op == "MelWeightMatrix":
        hertz = [TensorType("float32", (), (value,)) for value in (0.0, 4000.0)]
        sizes = [TensorType("int64", (), (value,)) for value in (8, 64, 8000)]
        for dtype in ("float32", "float16", "int32"):
            yield infer(op, dtype, [*sizes, *hertz], {"output_datatype": dtype})
    else:
        for dtype in ("float32", "float16", "bfloat16", "float64", "int32"):
            yield _call(op, "int64", TensorType("int64", (), (9,)), output_datatype=dtype, periodic=0)
        yield _call(op, "int32", TensorType("int32", (), (2_000,)))


_FAMILIES = {
    "elementwise": _elementwise,
    "views": _views,
    "generators": _generators,
    "movement": _movement,
    "reduction": _reduction,
    "linear": _linear,
    "nn": _nn,
    "selection": _selection,
    "indexing": _indexing,
    "scans": _scans,
    "rearrangement": _rearrangement,
    "normalization": _normalization,
    "resampling": _resampling,
    "transposed": _transposed,
    "contraction": _contraction,
    "sampling": _sampling,
    "signal": _signal,
    **training_calls.FAMILIES,
    **quantization_calls.FAMILIES,
    **attention_calls.FAMILIES,
    **recurrent_calls.FAMILIES,
}
