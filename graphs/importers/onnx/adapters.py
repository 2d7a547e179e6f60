"""Operators that are not kgrun's own as they stand: older opsets, and what vanishes.

An adapter takes one node of the model and returns the values of its outputs. What is not here goes to kgrun's operator
of the same name with its inputs and attributes unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kgrun.graphs.importers.onnx.contrib import CONTRIB
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.sequences import SEQUENCES
from kgrun.graphs.importers.onnx.uses import Use
from kgrun.graphs.importers.onnx.values import Value

Adapter = Callable[[Use], "Sequence[Value | list[Value] | None]"]


def _identity(use: Use) -> Sequence[Value | list[Value] | None]:
    return [use.inputs[0]]


def _dropout(use: Use) -> Sequence[Value | None]:
    """Nothing in inference, or where nothing is dropped; a wanted mask is all true."""
    training = use.known(2)
    if use.input(2) is not None and (training is None or training[0]) and use.known(1) != (0.0,):
        return use.result(use.tensors)
    if use.outputs < 2:
        return [use.needed(0)]
    made: list[Value | None] = list(use.result([use.needed(0)], {}))
    if use.version < 10:  # the mask was of the type of what it masks
        made[1] = use.part("CastLike", [made[1], use.needed(0)])
    return made


def _axes_to_input(*names: str) -> Adapter:
    """Attributes of older opsets as the inputs that follow the first one."""

    def adapt(use: Use) -> Sequence[Value | None]:
        attributes, inputs = dict(use.attributes), list(use.tensors)
        for position, name in enumerate(names, start=1):
            if name in attributes:
                items = attributes.pop(name)
                inputs += [None] * (position + 1 - len(inputs))
                inputs[position] = use.ints(items if isinstance(items, list) else [items])
        return use.result(inputs, attributes)

    return adapt


def _softmax(use: Use) -> Sequence[Value | None]:
    """Before opset 13 all axes from `axis` on are one row."""
    if use.version >= 13:
        return use.result(use.tensors)
    x, axis = use.needed(0), use.attributes.get("axis", 1)
    if x.rank is not None and axis in (-1, x.rank - 1):
        return use.result([x], {"axis": -1})
    flat = use.part("Flatten", [x], axis=axis)
    rows = use.part(use.op, [flat], axis=-1)
    return use.result([rows, use.part("Shape", [x])], {}, "Reshape")


def _batch_normalization(use: Use) -> Sequence[Value | None]:
    """Opset 7 could normalise each place by itself; up to 9, extra outputs meant training."""
    attributes = dict(use.attributes)
    if not attributes.pop("spatial", 1):
        raise Unsupported("BatchNormalization with spatial = 0")
    if use.version < 14 and use.outputs > 1:
        raise Unsupported("BatchNormalization in training, of an opset before 14")
    return use.result(use.tensors, attributes)


def _layer_normalization(use: Use) -> Sequence[Value | None]:
    """A scale or bias may have more axes than are normalised; kgrun's operator takes those of one row."""
    x, scale, bias = use.needed(0), use.needed(1), use.input(2)
    axis = use.attributes.get("axis", -1)
    row = -axis if axis < 0 else None if x.rank is None else x.rank - axis
    if row is None or x.type is None or all((each.rank or 0) <= row for each in (scale, bias) if each is not None):
        return use.result(use.tensors)
    normal, *statistics = use.result([x, use.constant(x.type.dtype, (1,), (1.0,))])
    scaled = use.part("Mul", [normal, scale])
    return [scaled if bias is None else use.part("Add", [scaled, bias]), *statistics]


def _pad(use: Use) -> Sequence[Value | None]:
    """Opset 2 had pads and value as attributes."""
    if use.version >= 11:
        return use.result(use.tensors)
    attributes = dict(use.attributes)
    pads = use.ints(attributes.pop("pads"))
    value = attributes.pop("value", 0.0)
    x = use.needed(0)
    fill = None
    if value:
        dtype = x.type.dtype if x.type is not None else "float32"
        fill = use.constant(dtype, (), (float(value),))
    return use.result([x, pads, fill], attributes)


def _upsample(use: Use) -> Sequence[Value | None]:
    """Upsample is Resize that places samples as they stand and rounds down."""
    scales = use.attributes.get("scales")
    given = use.constant("float32", (len(scales),), tuple(map(float, scales))) if scales else use.needed(1)
    mode = use.attributes.get("mode", "nearest")
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    return use.result(
        [use.needed(0), None, given], attributes | ({"nearest_mode": "floor"} if mode == "nearest" else {}), "Resize"
    )


def _first_resize(use: Use) -> Sequence[Value | None]:
    """Resize of opset 10 placed samples as they stand; the nearest one was rounded up where an axis shrinks."""
    if use.attributes.get("mode", "nearest") != "nearest":
        return _upsample(use)
    one = use.constant("float32", (1,), (1.0,))
    scales = use.needed(1)
    known, found = scales.known, use.needed(0)
    placed = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    if known is not None and all(scale >= 1 for scale in known):
        return _upsample(use)
    if known is None or any(scale > 1 for scale in known):
        found = use.part("Resize", [found, None, use.part("Max", [scales, one])], **placed, nearest_mode="floor")
        scales = use.part("Min", [scales, one])
    return use.result([found, None, scales], {**placed, "nearest_mode": "ceil"})


def _resize(use: Use) -> Sequence[Value | None]:
    """Opset 10 had no roi; empty roi, scales and sizes stand for absent ones."""
    if use.version < 11:
        return _first_resize(use)
    inputs = use.tensors
    kept = [inputs[0], *(None if value is not None and value.shape == (0,) else value for value in inputs[1:])]
    if use.attributes.get("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize" and len(kept) > 1:
        kept[1] = None  # roi means nothing then
    return use.result(kept)


def _top_k(use: Use) -> Sequence[Value | None]:
    """Before opset 10 k was an attribute."""
    attributes, inputs = dict(use.attributes), use.tensors
    if "k" in attributes:
        inputs = [use.needed(0), use.ints([attributes.pop("k")])]
    return use.result(inputs, attributes)


def _grid_sample(use: Use) -> Sequence[Value | None]:
    """Opset 20 renamed two modes."""
    renamed = {"bilinear": "linear", "bicubic": "cubic"}
    mode = use.attributes.get("mode", "linear")
    return use.result(use.tensors, use.attributes | {"mode": renamed.get(mode, mode)})


def _roi_align(use: Use) -> Sequence[Value | None]:
    """Opset 16 brought half-pixel placing, and made it the default."""
    placed = {} if use.version >= 16 else {"coordinate_transformation_mode": "output_half_pixel"}
    return use.result(use.tensors, use.attributes | placed)


def _scatter(use: Use) -> Sequence[Value | None]:
    return use.result(use.tensors, op="ScatterElements")


def _dft(use: Use) -> Sequence[Value | None]:
    """Opset 20 made the axis an input."""
    attributes, inputs = dict(use.attributes), use.tensors
    if use.version < 20:
        axis = attributes.pop("axis", 1)
        inputs += [None] * (3 - len(inputs))
        inputs[2] = use.constant("int64", (), (axis,))
    return use.result(inputs, attributes)


def _cast_like(use: Use) -> Sequence[Value | None]:
    """A Cast, since the other tensor only tells the type."""
    like = use.needed(1)
    if like.type is None:
        return use.result(use.tensors)
    return use.result([use.needed(0)], use.attributes | {"to": like.type.dtype}, "Cast")


def _clip(use: Use) -> Sequence[Value | None]:
    """Before opset 11 the bounds were attributes, which default to what any float fits in."""
    if use.version >= 11:
        return use.result(use.tensors)
    beyond = {"min": -3.4028235e38, "max": 3.4028235e38}
    kept = {name: value for name, value in use.attributes.items() if beyond.get(name) != value}
    return use.result(use.tensors, kept)


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

ADAPTERS: dict[tuple[str, str], Adapter] = {
    ("", "Identity"): _identity,
    ("", "Dropout"): _dropout,
    ("", "CastLike"): _cast_like,
    ("", "Clip"): _clip,
    **{("", op): _softmax for op in ("Softmax", "LogSoftmax", "Hardmax")},
    **{("", f"Reduce{each}"): _axes_to_input("axes") for each in _REDUCTIONS},
    **{("", op): _axes_to_input("axes") for op in ("Squeeze", "Unsqueeze")},
    ("", "Slice"): _axes_to_input("starts", "ends", "axes"),
    ("", "Split"): _axes_to_input("split"),
    ("", "BatchNormalization"): _batch_normalization,
    ("", "LayerNormalization"): _layer_normalization,
    ("", "Pad"): _pad,
    ("", "Upsample"): _upsample,
    ("", "Resize"): _resize,
    ("", "TopK"): _top_k,
    ("", "GridSample"): _grid_sample,
    ("", "RoiAlign"): _roi_align,
    ("", "Scatter"): _scatter,
    ("", "DFT"): _dft,
    **{("", op): adapter for op, adapter in SEQUENCES.items()},
    **CONTRIB,
}
