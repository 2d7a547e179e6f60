"""Calls of normalizations, resampling, contractions, sampling and signals, for the tests of kernels."""

from __future__ import annotations

from collections.abc import Iterator

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import OpCall, TensorType
from tests.runtime.kernels.cuda.call_basics import call, dtypes_of, known


def _normalization(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        match op:
            case "InstanceNormalization":
                yield call(op, dtype, (2, 3, 5, 7), (3,), (3,))
            case "GroupNormalization":
                yield call(op, dtype, (2, 6, 5, 7), (6,), (6,), num_groups=2)
            case "RMSNormalization":
                yield call(op, dtype, (3, 5, 40), (40,))
            case "LRN":
                yield call(op, dtype, (2, 7, 3, 2), size=4, alpha=0.5, beta=0.7)
            case _:
                yield call(op, dtype, (2, 5, 4, 3))
    match op:
        case "InstanceNormalization":
            yield call(op, "float32", (1, 2, 40, 40), (2,), (2,))
        case "GroupNormalization":
            yield call(op, "float32", (2, 6, 5), (3,), (3,), num_groups=3)
        case "RMSNormalization":
            yield call(op, "float32", (2, 4, 6), (4, 1), axis=1)
            yield call(op, "float32", (2, 4_200), (4_200,))
            half = TensorType("float16", (3, 8))
            yield infer(op, "mixed", [half, TensorType("float32", (8,))], {})
        case "LpNormalization":
            yield call(op, "float32", (4, 6), p=1, axis=0)
        case "MeanVarianceNormalization":
            yield call(op, "float32", (3_000, 2), axes=[0])
            yield call(op, "float32", (3, 4), axes=[1])


def _resampling(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        scales = TensorType("float32", (4,), (1.0, 1.0, 2.0, 3.0))
        yield call(op, dtype, (2, 3, 4, 5), *([scales] if op == "Upsample" else [None, scales]))
        if op == "Resize" and dtype != "bool":
            for mode in ("linear", "cubic"):
                yield call(op, dtype, (2, 4, 5), None, None, known(7, 4), axes=[1, 2], mode=mode)
    if op == "Upsample":
        yield call(op, "float32", (1, 1, 4, 5), scales, mode="linear")
        return
    sizes, transform = known(7, 4), "coordinate_transformation_mode"
    for rule in ("half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"):
        yield call(op, "float32", (5, 6), None, None, sizes, mode="linear", **{transform: rule})
    for rounding in ("round_prefer_ceil", "floor", "ceil"):
        yield call(op, "float32", (5, 6), None, None, sizes, nearest_mode=rounding)
        yield call(op, "float32", (5, 6), None, None, known(15, 30), nearest_mode=rounding)  # whole coordinates
    region = TensorType("float32", (4,), (0.4, -0.5, 1.2, 0.7))
    for mode in ("nearest", "linear", "cubic"):
        crop = {transform: "tf_crop_and_resize", "mode": mode, "extrapolation_value": 9.0}
        yield call(op, "float32", (5, 6), region, None, sizes, **crop)
    for mode in ("linear", "cubic"):
        yield call(op, "float32", (9, 11), None, None, known(4, 3), mode=mode, antialias=1)
        yield call(op, "uint8", (9, 11), None, None, known(4, 13), mode=mode, antialias=1, exclude_outside=1)
    yield call(op, "float32", (4, 5, 6), None, None, known(8, 5, 3), mode="cubic", exclude_outside=1)
    yield call(op, "float32", (9, 6), None, None, sizes, mode="linear", keep_aspect_ratio_policy="not_larger")


def _transposed(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        match op:
            case "ConvTranspose":
                yield call(op, dtype, (2, 4, 5, 6), (4, 9, 3, 3), (9,), strides=[2, 1], pads=[1, 0, 1, 1])
                yield call(op, dtype, (2, 6, 5, 6), (6, 2, 2, 2), group=3, strides=[2, 2], output_padding=[1, 0])
            case "Col2Im":
                yield call(op, dtype, (2, 12, 12), known(4, 5), known(2, 2))
                more = {"pads": [1, 0, 0, 1], "strides": [2, 1], "dilations": [1, 2]}
                yield call(op, dtype, (1, 6, 12), known(4, 5), known(3, 1), **more)
            case "MaxUnpool":
                indices = TensorType("int64", (1, 2, 3, 4))
                yield call(op, dtype, (1, 2, 3, 4), indices, kernel_shape=[2, 2], strides=[2, 2])
    if op == "MaxUnpool":
        yield call(op, "float32", (1, 2, 3, 4), indices, known(1, 2, 8, 9), kernel_shape=[2, 2], strides=[2, 2])
    if op == "ConvTranspose":
        yield call(op, "float32", (1, 3, 7), (3, 8, 4), strides=[3], dilations=[2], auto_pad="SAME_UPPER")
        yield call(op, "float32", (1, 3, 7), (3, 8, 4), strides=[3], output_shape=[20])
        yield call(op, "float32", (1, 3, 7), (3, 8, 2), strides=[3], output_shape=[25])
        yield call(op, "float16", (1, 4, 3, 4, 2), (4, 8, 2, 2, 2), strides=[2, 2, 2])


def _contraction(op: str) -> Iterator[OpCall]:
    if op == "Det":
        for dtype in dtypes_of(op):
            yield call(op, dtype, (2, 5, 4, 4))
        yield call(op, "float32", (1, 1))
        return
    for dtype in dtypes_of(op):
        yield call(op, dtype, (2, 3, 7, 5), (2, 3, 6, 5), equation="bhid,bhjd->bhij")
        yield call(op, dtype, (4, 5), equation="ij->ji")
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
        ("ij,jk->ik", ((3, 1), (4, 5))),
        ("bij,bjk->bik", ((1, 3, 4), (2, 4, 5))),
        ("ij,jk,kl->il", ((3, 1), (4, 1), (5, 6))),
    ):
        yield call(op, "float32", *shapes, equation=equation)


def _sampling(op: str) -> Iterator[OpCall]:
    for dtype in dtypes_of(op):
        match op:
            case "GridSample":
                where = TensorType(dtype if DTYPES[dtype].kind == "float" else "float32", (2, 3, 4, 2))
                yield call(op, dtype, (2, 3, 5, 6), where, mode="nearest")
                if dtype != "bool":
                    yield call(op, dtype, (2, 3, 5, 6), where)
            case "AffineGrid":
                yield call(op, dtype, (2, 2, 3), known(2, 3, 4, 5))
            case "RoiAlign":
                more = {"output_height": 2, "output_width": 3, "spatial_scale": 3.0}
                images = TensorType("int64", (4,))
                yield call(op, dtype, (2, 3, 7, 6), (4, 4), images, **more)
                yield call(op, dtype, (2, 3, 7, 6), (4, 4), images, mode="max", sampling_ratio=2, **more)
            case "MaxRoiPool":
                yield call(op, dtype, (1, 3, 7, 6), (4, 5), pooled_shape=[2, 3], spatial_scale=6.0)
            case "DeformConv":
                yield call(op, dtype, (2, 4, 5, 6), (6, 2, 2, 2), (2, 16, 4, 5), (6,), group=2, offset_group=2)
    yield from _more_sampling(op)


def _more_sampling(op: str) -> Iterator[OpCall]:
    if op == "GridSample":
        for padding in ("zeros", "border", "reflection"):
            for mode in ("nearest", "linear", "cubic"):
                more = {"padding_mode": padding, "mode": mode, "align_corners": int(mode == "linear")}
                yield call(op, "float32", (2, 3, 5, 6), (2, 3, 4, 2), **more)
        yield call(op, "float32", (1, 2, 3, 4, 5), (1, 2, 3, 2, 3))
        yield call(op, "float32", (1, 2, 7), (1, 4, 1), mode="cubic")
    if op == "AffineGrid":
        yield call(op, "float32", (2, 3, 4), known(2, 1, 3, 4, 5), align_corners=1)
    if op == "RoiAlign":
        regions, images = (4, 4), TensorType("int64", (4,))
        yield call(op, "float32", (2, 3, 7, 6), regions, images, coordinate_transformation_mode="output_half_pixel")
    if op == "DeformConv":
        shapes = ((1, 2, 5, 6), (3, 2, 3, 2), (1, 12, 5, 5))
        yield call(op, "float32", *shapes, None, (1, 6, 5, 5), pads=[1, 0, 1, 1], dilations=[1, 2])


def _signal(op: str) -> Iterator[OpCall]:
    if op == "DFT":
        for dtype in dtypes_of(op):
            yield call(op, dtype, (2, 12, 1), onesided=1)
            yield call(op, dtype, (2, 9, 3, 2), known(11), known(1), inverse=1)
        yield call(op, "float32", (2, 9, 2), known(6))
        yield call(op, "float32", (2, 7, 2), inverse=1, onesided=1)
        yield call(op, "float32", (2, 5, 2), known(9), inverse=1, onesided=1)
    elif op == "STFT":
        step = TensorType("int64", (), (3,))
        for dtype in dtypes_of(op):
            yield call(op, dtype, (2, 30, 1), step, (8,))
        yield call(op, "float32", (2, 30), step, (8,))
        yield call(op, "float32", (1, 30, 2), step, None, TensorType("int64", (), (7,)), onesided=0)
    elif op == "MelWeightMatrix":
        hertz = [TensorType("float32", (), (value,)) for value in (0.0, 4000.0)]
        sizes = [TensorType("int64", (), (value,)) for value in (8, 64, 8000)]
        for dtype in ("float32", "float16", "int32"):
            yield infer(op, dtype, [*sizes, *hertz], {"output_datatype": dtype})
    else:
        for dtype in ("float32", "float16", "bfloat16", "float64", "int32"):
            yield call(op, "int64", TensorType("int64", (), (9,)), output_datatype=dtype, periodic=0)
        yield call(op, "int32", TensorType("int32", (), (2_000,)))


FAMILIES = {
    "normalization": _normalization,
    "resampling": _resampling,
    "transposed": _transposed,
    "contraction": _contraction,
    "sampling": _sampling,
    "signal": _signal,
}
