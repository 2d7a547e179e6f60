"""Normalisations that ONNX Runtime fuses with what stands before them."""

from __future__ import annotations

from kgrun.graphs.importers.onnx.contrib.parts import Contrib, Results, count, length, like, moved, sums, unsqueezed
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Use
from kgrun.graphs.importers.onnx.values import Value


def _skip_normalization(use: Use) -> Results:
    """A sum, then LayerNormalization or RMSNormalization of the last axis; output 3 is the sum."""
    simplified = use.op == "SkipSimplifiedLayerNormalization"
    total = use.part("Add", [use.needed(0), use.needed(1)])
    bias = use.input(3 if simplified else 4)
    if bias is not None:
        total = use.part("Add", [total, bias])
    if any(use.wanted[1:3]):
        raise Unsupported("mean and deviation as outputs")
    attributes = {"axis": -1, "epsilon": use.attributes.get("epsilon", 1e-12 if not simplified else 1e-5)}
    weights = [use.needed(2)] if simplified else [use.needed(2), use.input(3)]
    use.wanted = use.wanted[:1]
    made = use.result([total, *weights], attributes, "RMSNormalization" if simplified else "LayerNormalization")
    return [made[0], None, None, total]


def _simplified_normalization(use: Use) -> Results:
    """SimplifiedLayerNormalization is RMSNormalization."""
    if any(use.wanted[1:]):
        raise Unsupported("the deviation as an output")
    kept = {name: value for name, value in use.attributes.items() if name in ("axis", "epsilon")}
    return use.result(use.tensors, kept, "RMSNormalization")


def _embeddings(use: Use) -> Results:
    """Rows of the word, position and segment tables, their sum normalised; output 1 counts the ones of a mask."""
    words, segments, mask, positions = use.needed(0), use.input(1), use.input(7), use.input(8)
    at: Value = positions if positions is not None else count(use, length(use, words, 1))
    rows = use.part("Gather", [use.needed(3), at])
    found = [use.part("Gather", [use.needed(2), words]), rows if positions is not None else unsqueezed(use, rows, 0)]
    if segments is not None:
        found.append(use.part("Gather", [use.needed(4), segments]))
    return normalised_sum(use, found, use.needed(5), use.needed(6), mask)


def normalised_sum(use: Use, rows: list[Value], scale: Value, bias: Value, mask: Value | None) -> Results:
    """What EmbedLayerNormalization makes of the rows: their normalised sum, the words of each mask, the sum."""
    total = sums(use, *rows)
    words: Value | None = None
    if len(use.wanted) > 1 and use.wanted[1]:
        words = _words(use, mask)
    use.wanted = use.wanted[:1]
    epsilon = use.attributes.get("epsilon", 1e-12)
    made = use.result([total, scale, bias], {"axis": -1, "epsilon": epsilon}, "LayerNormalization")
    return [made[0], words, total]


def _words(use: Use, mask: Value | None) -> Value:
    """How many elements of each row of the mask are 1; zeros where there is no mask."""
    one = use.constant("int32", (), (1,))
    if mask is None:
        ids = use.needed(0)
        none = use.part("Sub", [ids, ids])
        return use.part("ReduceSum", [none, use.ints([1])], keepdims=0)
    ones = use.part("Cast", [use.part("Equal", [mask, one])], to="int32")
    return use.part("ReduceSum", [ones, use.ints([1])], keepdims=0)


def _group_normalization(use: Use) -> Results:
    """GroupNorm, and SkipGroupNorm, which adds first: GroupNormalization, then x · sigmoid(x) where asked for."""
    x, last = use.needed(0), use.attributes.get("channels_last", 1)
    total: Value | None = None
    if use.op == "SkipGroupNorm":
        skip = use.needed(3)
        if skip.rank == 2:
            skip = unsqueezed(use, skip, *((1, 2) if last else (2, 3)))
        bias = use.input(4)
        if bias is not None and not last:
            bias = unsqueezed(use, bias, 1, 2)
        total = sums(use, x, skip, bias)
    source = x if total is None else total
    if last:
        source = moved(use, source, last=False)
    settings = {"num_groups": use.attributes["groups"], "epsilon": use.attributes.get("epsilon", 1e-5)}
    made = use.part("GroupNormalization", [source, use.needed(1), use.needed(2)], **settings)
    if last:
        made = moved(use, made, last=True)
    if use.attributes["activation"]:
        made = use.part("Swish", [made])
    return [made, total]


def _gated_normalization(use: Use) -> Results:
    """RMSNormalization of runs of the last axis, times x · sigmoid(x) or sigmoid(x) of a gate."""
    x, scale, gate = use.needed(0), use.needed(1), use.needed(2)
    if scale.shape is None or x.rank is None:
        raise Unsupported("the size of its runs is not known")
    runs = use.part("Reshape", [x, use.ints([*[0] * (x.rank - 1), -1, *scale.shape])])
    epsilon = use.attributes.get("epsilon", 1e-5)
    made = use.part("RMSNormalization", [runs, scale], axis=-1, epsilon=epsilon)
    flat = use.part("Reshape", [made, use.part("Shape", [x])])
    activation = use.attributes.get("activation", "silu")
    opened = use.part("Sigmoid" if activation == "sigmoid" else "Swish", [gate])
    return use.result([flat, opened], {}, "Mul")


def _scaled_silu(use: Use) -> Results:
    """x · sigmoid(x) of scaled elements."""
    x, scale = use.needed(0), use.input(1)
    if scale is None:
        scale = like(use, x, use.attributes.get("alpha", 1.0))
    return use.result([use.part("Mul", [x, scale])], {}, "Swish")


NORMALIZATION: dict[str, Contrib] = {
    "SimplifiedLayerNormalization": _simplified_normalization,
    "SkipLayerNormalization": _skip_normalization,
    "SkipSimplifiedLayerNormalization": _skip_normalization,
    "EmbedLayerNormalization": _embeddings,
    "GroupNorm": _group_normalization,
    "SkipGroupNorm": _group_normalization,
    "GatedRMSNorm": _gated_normalization,
    "ScaledSiLU": _scaled_silu,
}
