"""Operators that ONNX Runtime adds when it optimises or quantises a model (domain com.microsoft), by ONNX's own.

Their semantics: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Use
from kgrun.graphs.importers.onnx.values import Value

Results = Sequence[Value | None]
Contrib = Callable[[Use], Results]


def _gelu(use: Use) -> Results:
    """Gelu, BiasGelu, FastGelu: a bias first where there is one; FastGelu takes tanh for the error function."""
    x = use.needed(0)
    bias = use.input(1)
    if bias is not None:
        x = use.part("Add", [x, bias])
    return use.result([x], {"approximate": "tanh"} if use.op == "FastGelu" else {}, "Gelu")


def _quick_gelu(use: Use) -> Results:
    return use.result([use.needed(0)], {"alpha": use.attributes.get("alpha", 1.702)}, "Swish")


def _fused_matmul(use: Use) -> Results:
    """MatMul of transposed factors, times alpha."""
    factors = [use.needed(0), use.needed(1)]
    if use.attributes.get("transBatchA", 0) or use.attributes.get("transBatchB", 0):
        raise Unsupported("FusedMatMul that transposes its batch axes")
    for index, name in enumerate(("transA", "transB")):
        rank = factors[index].rank
        if use.attributes.get(name, 0):
            if rank is None:
                raise Unsupported("the rank of a factor is not known")
            if rank > 1:
                perm = [*range(rank - 2), rank - 1, rank - 2]
                factors[index] = use.part("Transpose", [factors[index]], perm=perm)
    alpha = use.attributes.get("alpha", 1.0)
    if alpha == 1.0:
        return use.result(factors, {}, "MatMul")
    return use.result([use.part("MatMul", factors), _like(use, factors[0], alpha)], {}, "Mul")


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


def _fused_activation(op: str) -> Contrib:
    """Conv or Gemm, a sum with input 3 where there is one, and an activation with its parameters."""

    def adapt(use: Use) -> Results:
        attributes = dict(use.attributes)
        activation = str(attributes.pop("activation", ""))
        numbers = list(attributes.pop("activation_params", []))
        alpha, beta, gamma = (attributes.pop(f"activation_{name}", None) for name in ("alpha", "beta", "gamma"))
        numbers = numbers or [number for number in (alpha, beta, gamma) if number is not None]
        inputs, added = use.tensors[:3], use.input(3)
        if not activation and added is None:
            return use.result(inputs, attributes, op)
        value = use.part(op, inputs, **attributes)
        if added is not None:
            if not activation:
                return use.result([value, added], {}, "Add")
            value = use.part("Add", [value, added])
        if activation == "Clip":
            return use.result([value, *(_like(use, value, number) for number in numbers)], {}, "Clip")
        names = {"LeakyRelu": ["alpha"], "HardSigmoid": ["alpha", "beta"], "Elu": ["alpha"]}.get(activation, [])
        return use.result([value], dict(zip(names, numbers, strict=False)), activation)

    return adapt


def _integer_matmul(use: Use) -> Results:
    """MatMulIntegerToFloat, and DynamicQuantizeMatMul, which quantises its first factor itself."""
    dynamic = use.op == "DynamicQuantizeMatMul"
    if dynamic:
        a, a_scale, zero = use.emitter.op("DynamicQuantizeLinear", [use.needed(0)], {}, 3, f"{use.name}/quantised")
        a_zero: Value | None = zero
        b, b_scale, b_zero, bias = use.needed(1), use.needed(2), use.input(3), use.input(4)
    else:
        a, b, a_scale, b_scale = (use.needed(index) for index in range(4))
        a_zero, b_zero, bias = use.input(4), use.input(5), use.input(6)
    product = use.part("Cast", [use.part("MatMulInteger", [a, b, a_zero, b_zero])], to="float32")
    scale = use.part("Mul", [a_scale, b_scale])
    if bias is None:
        return use.result([product, scale], {}, "Mul")
    return use.result([use.part("Mul", [product, scale]), bias], {}, "Add")


def _quantised(op: str, operands: int = 1) -> Contrib:
    """An operator between DequantizeLinear of its operands and QuantizeLinear of its result."""

    def adapt(use: Use) -> Results:
        triples = [use.tensors[3 * index : 3 * index + 3] for index in range(operands)]
        if use.attributes.get("channels_last", 0):
            raise Unsupported("channels that come last")
        kept = {name: value for name, value in use.attributes.items() if name != "channels_last"}
        value = use.part(op, [use.part("DequantizeLinear", triple) for triple in triples], **kept)
        return use.result([value, *use.tensors[3 * operands : 3 * operands + 2]], {}, "QuantizeLinear")

    return adapt


def _same(use: Use) -> Results:
    return use.result(use.tensors)


def _like(use: Use, value: Value, number: float) -> Value:
    """A scalar of the value's type."""
    return use.constant(value.type.dtype if value.type is not None else "float32", (), (float(number),))


DOMAIN = "com.microsoft"
CONTRIB: dict[tuple[str, str], Contrib] = {
    ("", "SimplifiedLayerNormalization"): _simplified_normalization,
    **{(DOMAIN, op): _gelu for op in ("Gelu", "BiasGelu", "FastGelu")},
    (DOMAIN, "QuickGelu"): _quick_gelu,
    (DOMAIN, "FusedMatMul"): _fused_matmul,
    (DOMAIN, "TransposeMatMul"): _fused_matmul,
    (DOMAIN, "SkipLayerNormalization"): _skip_normalization,
    (DOMAIN, "SkipSimplifiedLayerNormalization"): _skip_normalization,
    (DOMAIN, "FusedConv"): _fused_activation("Conv"),
    (DOMAIN, "FusedGemm"): _fused_activation("Gemm"),
    (DOMAIN, "DynamicQuantizeMatMul"): _integer_matmul,
    (DOMAIN, "MatMulIntegerToFloat"): _integer_matmul,
    (DOMAIN, "QLinearAdd"): _quantised("Add", 2),
    (DOMAIN, "QLinearMul"): _quantised("Mul", 2),
    (DOMAIN, "QLinearSigmoid"): _quantised("Sigmoid"),
    (DOMAIN, "QLinearLeakyRelu"): _quantised("LeakyRelu"),
    (DOMAIN, "QLinearGlobalAveragePool"): _quantised("GlobalAveragePool"),
    (DOMAIN, "QuantizeLinear"): _same,
    (DOMAIN, "DequantizeLinear"): _same,
}
