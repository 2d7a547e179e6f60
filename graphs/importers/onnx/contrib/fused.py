"""Products and convolutions with what ONNX Runtime fuses to them: activations, sums, transposes."""

from __future__ import annotations

from collections.abc import Sequence

from kgrun.graphs.importers.onnx.contrib.parts import Contrib, Results, like
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Use
from kgrun.graphs.importers.onnx.values import Value


def _gelu(use: Use) -> Results:
    """Gelu, BiasGelu, FastGelu: a bias first where there is one; FastGelu takes tanh for the error function."""
    x = use.needed(0)
    bias = use.input(1)
    if bias is not None:
        x = use.part("Add", [x, bias])
    return use.result([x], {"approximate": "tanh"} if use.op == "FastGelu" else {}, "Gelu")


def _quick_gelu(use: Use) -> Results:
    return use.result([use.needed(0)], {"alpha": use.attributes.get("alpha", 1.702)}, "Swish")


def _gemm_fast_gelu(use: Use) -> Results:
    """FastGelu of a product."""
    x, bias = use.part("MatMul", [use.needed(0), use.needed(1)]), use.input(2)
    if bias is not None:
        x = use.part("Add", [x, bias])
    return use.result([x], {"approximate": "tanh"}, "Gelu")


def _split_gelu(use: Use) -> Results:
    """The first half of biased elements times Gelu of the second."""
    total = use.part("Add", [use.needed(0), use.needed(1)])
    left, right = use.parts("Split", [total], 2, axis=-1, num_outputs=2)
    return use.result([left, use.part("Gelu", [right])], {}, "Mul")


def _bias_add(use: Use) -> Results:
    """A sum of three."""
    return use.result([use.part("Add", [use.needed(0), use.needed(1)]), use.needed(2)], {}, "Add")


def _fused_matmul(use: Use) -> Results:
    """MatMul of transposed factors, times alpha, then an activation where there is one."""
    factors = [
        _transposed(use, use.needed(index), letter, bool(use.attributes.get(f"trans{letter}", 0)))
        for index, letter in enumerate("AB")
    ]
    alpha, activation = use.attributes.get("alpha", 1.0), use.attributes.get("activation", "")
    if alpha == 1.0 and not activation:
        return use.result(factors, {}, "MatMul")
    product = use.part("MatMul", factors)
    if not activation:
        return use.result([product, like(use, factors[0], alpha)], {}, "Mul")
    if alpha != 1.0:
        product = use.part("Mul", [product, like(use, factors[0], alpha)])
    numbers = [use.attributes[name] for name in _NUMBERS if name in use.attributes]
    return _activation(use, product, activation, numbers)


def _transposed(use: Use, factor: Value, letter: str, last: bool) -> Value:
    """The factor with its last two axes swapped (`last`), its first axis moved before the last one (transBatch)."""
    batch, rank = bool(use.attributes.get(f"transBatch{letter}", 0)), factor.rank
    if not last and not batch:
        return factor
    if rank is None:
        raise Unsupported("the rank of a factor is not known")
    axes = [*range(1, rank - 1), 0, rank - 1] if batch and rank > 2 else list(range(rank))
    if last and rank > 1:
        axes[-2:] = axes[:-3:-1]
    return factor if axes == sorted(axes) else use.part("Transpose", [factor], perm=axes)


_NUMBERS = ("activation_alpha", "activation_beta", "activation_gamma")


def activated(use: Use, op: str, inputs: Sequence[Value | None], added: Value | None) -> list[Value]:
    """Operator `op`, a sum with what is added, and the activation that the attributes name."""
    attributes = dict(use.attributes)
    activation = str(attributes.pop("activation", ""))
    numbers = list(attributes.pop("activation_params", []))
    given = [attributes.pop(name, None) for name in _NUMBERS]
    numbers = numbers or [number for number in given if number is not None]
    if not activation and added is None:
        return use.result(inputs, attributes, op)
    value = use.part(op, inputs, **attributes)
    if added is not None:
        if not activation:
            return use.result([value, added], {}, "Add")
        value = use.part("Add", [value, added])
    return _activation(use, value, activation, numbers)


def _activation(use: Use, value: Value, activation: str, numbers: Sequence[float]) -> list[Value]:
    if activation == "Clip":
        return use.result([value, *(like(use, value, number) for number in numbers)], {}, "Clip")
    names = {"LeakyRelu": ["alpha"], "HardSigmoid": ["alpha", "beta"], "Elu": ["alpha"]}.get(activation, [])
    return use.result([value], dict(zip(names, numbers, strict=False)), activation)


def _fused(op: str) -> Contrib:
    return lambda use: activated(use, op, use.tensors[:3], use.input(3))


def _bias_dropout(use: Use) -> Results:
    """In inference a sum with a bias, and with what goes past it."""
    training = use.known(4)
    if use.input(4) is not None and (training is None or training[0]):
        raise Unsupported("dropout while training")
    if any(use.wanted[1:]):
        raise Unsupported("the mask as an output")
    total, residual = use.part("Add", [use.needed(0), use.needed(1)]), use.input(2)
    return [total if residual is None else use.part("Add", [total, residual])]


FUSED: dict[str, Contrib] = {
    **dict.fromkeys(("Gelu", "BiasGelu", "FastGelu"), _gelu),
    "QuickGelu": _quick_gelu,
    "GemmFastGelu": _gemm_fast_gelu,
    "BiasSplitGelu": _split_gelu,
    "BiasAdd": _bias_add,
    "BiasDropout": _bias_dropout,
    **dict.fromkeys(("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul"), _fused_matmul),
    "FusedConv": _fused("Conv"),
    "FusedGemm": _fused("Gemm"),
}
