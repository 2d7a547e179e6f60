"""Calls of losses, gradients and optimizers for the tests of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import OpCall, TensorType

FLOATS = ("float32", "float16", "bfloat16", "float64")
Ints = tuple[int, ...]


def _known(values: Ints) -> TensorType:
    return TensorType("int64", (len(values),), values)


def _typed(dtype: str, *shapes: Ints | TensorType | None) -> list[TensorType | None]:
    return [TensorType(dtype, shape) if isinstance(shape, tuple) else shape for shape in shapes]


def losses(op: str) -> Iterator[OpCall]:
    """Every reduction, weights, ignored labels, spatial axes, long rows, no rows."""
    gradient = op.endswith("Grad")

    def call(dtype: str, scores: Ints, *, weights: bool = False, labels: str = "int64", **attributes: Any) -> OpCall:
        shape = (scores[0], *scores[2:])
        types = _typed(dtype, scores, TensorType(labels, shape), (scores[1],) if weights else None)
        if gradient:
            types = [TensorType(dtype, shape if attributes.get("reduction") == "none" else ()), *types]
        outputs = 2 if op == "SoftmaxCrossEntropyLoss" else 1
        return infer(op, f"{op}_{dtype}", types, attributes, outputs)

    for dtype in FLOATS:
        yield call(dtype, (6, 5), weights=True)
    yield call("float32", (3, 5, 4, 2), reduction="none", labels="int32")
    yield call("float32", (3, 5, 4, 2), reduction="none", weights=True, ignore_index=2)
    yield call("float32", (3, 5, 7), reduction="sum", weights=True)
    yield call("float32", (40, 9), ignore_index=-1)
    yield call("float32", (40, 9), ignore_index=3)
    yield call("float32", (2, 1_100))
    yield call("float32", (0, 5), reduction="sum")


def gradients(op: str) -> Iterator[OpCall]:
    """Calls of one gradient operator."""
    if "cuda" in all_schemas()[op].data:
        for dtype in FLOATS:
            yield infer(op, f"{op}_{dtype}", _typed(dtype, (3, 37), (3, 37)), {})
        if op == "GeluGrad":
            yield infer(op, "tanh", _typed("float32", (9,), (9,)), {"approximate": "tanh"})
    elif op in ("SoftmaxGrad", "LogSoftmaxGrad"):
        for dtype in FLOATS:
            yield infer(op, f"{op}_{dtype}", _typed(dtype, (3, 20, 5), (3, 20, 5)), {"axis": 1})
        yield infer(op, "long", _typed("float32", (3, 1_100), (3, 1_100)), {})
    else:
        yield from _OTHERS[op]()


def _convolutions() -> Iterator[OpCall]:
    def call(dtype: str, x: Ints, w: Ints, y: Ints, outputs: int = 3, **attributes: Any) -> OpCall:
        return infer("ConvGrad", f"conv_grad_{dtype}", _typed(dtype, y, x, w), attributes, outputs)

    for dtype in FLOATS:
        yield call(dtype, (2, 4, 9, 10), (16, 4, 3, 3), (2, 16, 5, 10), pads=[1, 1, 1, 1], strides=[2, 1])
    yield call("float32", (2, 4, 9, 10), (4, 1, 3, 3), (2, 4, 9, 10), group=4, auto_pad="SAME_UPPER")
    yield call("float32", (2, 6, 12), (18, 3, 3), (2, 18, 8), group=2, dilations=[2])
    yield call("float16", (1, 3, 6, 5, 4), (8, 3, 2, 2, 2), (1, 8, 3, 3, 4), auto_pad="SAME_LOWER", strides=[2, 2, 1])
    yield call("float32", (3, 2, 30, 20), (5, 2, 3, 3), (3, 5, 28, 18))  # its weight's gradient is cut into parts
    yield call("float32", (2, 5, 4, 4), (7, 5, 1, 1), (2, 7, 4, 4), outputs=2)
    yield call("float32", (2, 3, 7), (4, 3, 2), (2, 4, 3), outputs=1, strides=[2])
    yield call("float32", (0, 5, 4, 4), (7, 5, 1, 1), (0, 7, 4, 4))


def _pools(op: str) -> Iterator[OpCall]:
    def call(dtype: str, x: Ints, y: Ints, **attributes: Any) -> OpCall:
        types = _typed(dtype, y, x, TensorType("int64", y) if op == "MaxPoolGrad" else None)
        return infer(op, f"{op}_{dtype}", types, attributes)

    for dtype in FLOATS:
        yield call(dtype, (2, 3, 8, 9), (2, 3, 4, 5), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 0])
    ceiled = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]}
    option = {"storage_order": 1} if op == "MaxPoolGrad" else {"count_include_pad": 1}
    yield call("float32", (1, 2, 6, 8), (1, 2, 4, 5), **ceiled)
    yield call("float32", (1, 2, 6, 8), (1, 2, 4, 5), **ceiled, **option)
    yield call("float32", (1, 2, 12), (1, 2, 8), kernel_shape=[3], dilations=[2])
    yield call("float32", (1, 2, 5, 4, 4), (1, 2, 4, 3, 3), kernel_shape=[2, 2, 2])


def _layer_normalizations() -> Iterator[OpCall]:
    def call(dtype: str, x: Ints, axis: int, outputs: int = 3) -> OpCall:
        statistic = TensorType("float32", x[:axis] + (1,) * (len(x) - axis))
        types = [*_typed(dtype, x, x, x[axis:]), statistic, statistic]
        return infer("LayerNormalizationGrad", f"layer_norm_grad_{dtype}", types, {"axis": axis}, outputs)

    for dtype in FLOATS:
        yield call(dtype, (3, 5, 40), 2)
    yield call("float32", (2, 4, 6), 1, 1)
    yield call("float32", (2, 1_500), 1, 2)
    yield call("float32", (300, 3), 1)


def _gathers() -> Iterator[OpCall]:
    def call(dtype: str, shape: Ints, indices: TensorType, axis: int) -> OpCall:
        gradient = TensorType(dtype, shape[:axis] + indices.shape + shape[axis + 1 :])
        return infer("GatherGrad", f"gather_grad_{dtype}", [_known(shape), indices, gradient], {"axis": axis})

    for dtype in FLOATS:
        yield call(dtype, (6, 8), TensorType("int64", (2, 9)), 0)
    yield call("float32", (4, 3, 5), TensorType("int32", (7,)), 1)
    yield call("float32", (4, 3), TensorType("int64", ()), 0)
    yield call("float32", (4, 3), TensorType("int64", (0,)), 0)


_OTHERS = {
    "ConvGrad": _convolutions,
    "MaxPoolGrad": lambda: _pools("MaxPoolGrad"),
    "AveragePoolGrad": lambda: _pools("AveragePoolGrad"),
    "LayerNormalizationGrad": _layer_normalizations,
    "GatherGrad": _gathers,
}


def optimizers(op: str) -> Iterator[OpCall]:
    """One and two parameters, the first step and a later one, every mode."""
    if op == "ApplyMomentum":
        for dtype in FLOATS:
            types = _typed(dtype, (5, 60), (5, 60), (), (5, 60), (1,))
            yield infer(op, f"{op}_{dtype}", types, {}, 2)
        yield infer(op, "nesterov", _typed("float32", (9,), (9,), (), (9,), ()), {"use_nesterov": 1}, 2)
        return
    kinds = {"SGD": 1, "Momentum": 2, "Adagrad": 2, "Adam": 3}[op]
    counts = [None] if op == "SGD" else [(0,), (3,)]
    momentum = {"alpha": 0.9, "beta": 0.5, "mode": "standard", "norm_coefficient": 0.01}
    variants: list[dict[str, Any]] = {
        "SGD": [{}, {"norm_coefficient": 0.01}],
        "Momentum": [momentum, {**momentum, "mode": "nesterov"}],
        "Adagrad": [{"norm_coefficient": 0.01, "decay_factor": 0.1}],
        "Adam": [{}, {"norm_coefficient": 0.01, "norm_coefficient_post": 0.02, "alpha": 0.8, "beta": 0.9}],
    }[op]
    for dtype in (*("float32", "float64"), *(("float16", "bfloat16") if op == "SGD" else ())):
        for count in counts:
            for attributes in variants:
                tensors = [TensorType(dtype, shape) for _ in range(kinds + 1) for shape in ((3, 70), (11,))]
                head = [TensorType("float32" if dtype != "float64" else dtype, ())]
                head += [] if count is None else [TensorType("int64", (), count)]
                yield infer(op, f"{op}_{dtype}_{count}", [*head, *tensors], attributes, 2 * kinds)


FAMILIES = {"losses": losses, "gradients": gradients, "optimizers": optimizers}
