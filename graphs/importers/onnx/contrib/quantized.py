"""Operators on quantised tensors: integer products scaled to floats, and others between floats and integers."""

from __future__ import annotations

from kgrun.graphs.importers.onnx.contrib.attention import attended
from kgrun.graphs.importers.onnx.contrib.normalization import normalised_sum
from kgrun.graphs.importers.onnx.contrib.parts import Contrib, Results, count, length, like, moved, unsqueezed
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Use
from kgrun.graphs.importers.onnx.values import Value


def _integer_matmul(use: Use) -> Results:
    """MatMulIntegerToFloat, and DynamicQuantizeMatMul, which quantises its first factor itself."""
    if use.op == "DynamicQuantizeMatMul":
        a, a_scale, a_zero = use.parts("DynamicQuantizeLinear", [use.needed(0)], 3)
        b, b_scale, b_zero, bias = use.needed(1), use.needed(2), use.input(3), use.input(4)
        return _product(use, (a, a_scale, a_zero), (b, b_scale, b_zero), bias)
    a, b, a_scale, b_scale = (use.needed(index) for index in range(4))
    return _product(use, (a, a_scale, use.input(4)), (b, b_scale, use.input(5)), use.input(6))


Factor = tuple[Value, Value, "Value | None"]  # numbers, scale, zero point


def _product(use: Use, first: Factor, second: Factor, bias: Value | None) -> Results:
    """A product of integers, times both scales, plus a bias."""
    (a, a_scale, a_zero), (b, b_scale, b_zero) = first, second
    product = use.part("Cast", [use.part("MatMulInteger", [a, b, a_zero, b_zero])], to="float32")
    scale = use.part("Mul", [a_scale, b_scale])
    if bias is None:
        return use.result([product, scale], {}, "Mul")
    return use.result([use.part("Mul", [product, scale]), bias], {}, "Add")


def _gemm(use: Use) -> Results:
    """QGemm: a product of integers plus integers, scaled; quantised again where a scale for that is given."""
    a, a_scale, a_zero, b, b_scale = (use.needed(index) for index in range(5))
    b_zero, added, y_scale, y_zero = (use.input(index) for index in range(5, 9))
    if use.attributes.get("transA", 0):
        a = use.part("Transpose", [a], perm=[1, 0])
    if use.attributes.get("transB", 0):
        b = use.part("Transpose", [b], perm=[1, 0])
    total = use.part("MatMulInteger", [a, b, a_zero, b_zero])
    if added is not None:
        total = use.part("Add", [total, added])
    scale, alpha = use.part("Mul", [a_scale, b_scale]), use.attributes.get("alpha", 1.0)
    if alpha != 1.0:
        scale = use.part("Mul", [scale, like(use, scale, alpha)])
    scaled = [use.part("Cast", [total], to="float32"), scale]
    if y_scale is None:
        return use.result(scaled, {}, "Mul")
    return use.result([use.part("Mul", scaled), y_scale, y_zero], {}, "QuantizeLinear")


def _between(op: str, operands: int = 1) -> Contrib:
    """An operator between DequantizeLinear of its operands and QuantizeLinear of its result."""

    def adapt(use: Use) -> Results:
        attributes = dict(use.attributes)
        last = bool(attributes.pop("channels_last", 0))
        found = [use.part("DequantizeLinear", use.tensors[3 * at : 3 * at + 3]) for at in range(operands)]
        if last:
            found = [moved(use, value, last=False) for value in found]
        value = use.part(op, found, **attributes)
        if last:
            value = moved(use, value, last=True)
        return use.result([value, *use.tensors[3 * operands : 3 * operands + 2]], {}, "QuantizeLinear")

    return adapt


def _softmax(use: Use) -> Results:
    """QLinearSoftmax; before opset 13 all axes from `axis` on are one row."""
    x = use.part("DequantizeLinear", use.tensors[:3])
    old, axis = use.attributes.get("opset", 13) < 13, use.attributes.get("axis", -1)
    source = use.part("Flatten", [x], axis=axis) if old else x
    made = use.part("Softmax", [source], axis=-1 if old else axis)
    if old:
        made = use.part("Reshape", [made, use.part("Shape", [x])])
    return use.result([made, *use.tensors[3:5]], {}, "QuantizeLinear")


def _mean(use: Use) -> Results:
    """QLinearReduceMean, whose axes are an attribute."""
    axes = use.attributes.get("axes")
    x = use.part("DequantizeLinear", use.tensors[:3])
    inputs = [x] if axes is None else [x, use.ints(axes)]
    made = use.part("ReduceMean", inputs, keepdims=use.attributes.get("keepdims", 1))
    return use.result([made, *use.tensors[3:5]], {}, "QuantizeLinear")


def _concat(use: Use) -> Results:
    """QLinearConcat: tensors, each with scale and zero point, after those of the result."""
    given = use.tensors
    parts = [use.part("DequantizeLinear", given[at : at + 3]) for at in range(2, len(given), 3)]
    joined = use.part("Concat", parts, axis=use.attributes["axis"])
    return use.result([joined, *given[:2]], {}, "QuantizeLinear")


def _where(use: Use) -> Results:
    """QLinearWhere: one of two quantised tensors."""
    chosen = [use.part("DequantizeLinear", use.tensors[at : at + 3]) for at in (1, 4)]
    return use.result([use.part("Where", [use.needed(0), *chosen]), *use.tensors[7:9]], {}, "QuantizeLinear")


def _convolution(use: Use) -> Results:
    """QLinearConv, whose channels may come last."""
    attributes = dict(use.attributes)
    if not attributes.pop("channels_last", 0):
        return use.result(use.tensors, attributes)
    inputs = use.tensors
    inputs[0] = moved(use, use.needed(0), last=False)
    return [moved(use, use.part("QLinearConv", inputs, **attributes), last=True)]


def _attention(use: Use) -> Results:
    """QAttention: queries, keys and values by a product of integers; then as Attention."""
    x, weights, bias, x_scale, w_scale = (use.needed(index) for index in range(5))
    mask, x_zero, w_zero, past = (use.input(index) for index in range(5, 9))
    product = use.part("Cast", [use.part("MatMulInteger", [x, weights, x_zero, w_zero])], to="float32")
    scaled = use.part("Mul", [product, use.part("Mul", [x_scale, w_scale])])
    if bias.shape is None:
        raise Unsupported("the size of its bias is not known")
    size = bias.shape[0] // 3
    return attended(use, use.part("Add", [scaled, bias]), [size] * 3, mask, past, None)


def _embeddings(use: Use) -> Results:
    """QEmbedLayerNormalization: rows of quantised tables, then as EmbedLayerNormalization."""
    words, segments, mask = use.needed(0), use.input(1), use.input(7)

    def rows(table: int, scale: int, zero: int, at: Value | None) -> Value:
        found = use.needed(table) if at is None else use.part("Gather", [use.needed(table), at])
        return use.part("DequantizeLinear", [found, use.needed(scale), use.input(zero)])

    positions = rows(3, 9, 14, count(use, length(use, words, 1)))
    found = [rows(2, 8, 13, words), unsqueezed(use, positions, 0)]
    if segments is not None:
        found.append(rows(4, 10, 15, segments))
    return normalised_sum(use, found, rows(5, 11, 16, None), rows(6, 12, 17, None), mask)


QUANTIZED: dict[str, Contrib] = {
    "DynamicQuantizeMatMul": _integer_matmul,
    "MatMulIntegerToFloat": _integer_matmul,
    "QGemm": _gemm,
    "QLinearAdd": _between("Add", 2),
    "QLinearMul": _between("Mul", 2),
    "QLinearSigmoid": _between("Sigmoid"),
    "QLinearLeakyRelu": _between("LeakyRelu"),
    "QLinearAveragePool": _between("AveragePool"),
    "QLinearGlobalAveragePool": _between("GlobalAveragePool"),
    "QLinearSoftmax": _softmax,
    "QLinearReduceMean": _mean,
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "QLinearConv": _convolution,
    "QAttention": _attention,
    "QEmbedLayerNormalization": _embeddings,
}
