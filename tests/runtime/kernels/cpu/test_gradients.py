"""Gradients against numeric differentiation of the forward operators, and optimizers against their formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime import Session
from kgrun.runtime.kernels.base import KernelCall, cpu_kernel, cuda_kernel
from tests.runtime.kernels.cpu.calls import call_of, run
from tests.support import graph, node, tensor

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)


def numeric(function: Callable[[Array], float], x: Array, step: float = 1e-5) -> Array:
    """The gradient of a scalar function by central differences."""
    result = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        moved = x.copy()
        moved[at] += step
        above = function(moved)
        moved[at] -= 2 * step
        result[at] = (above - function(moved)) / (2 * step)
    return result


def differentiated(op: str, arrays: Sequence[Array], dy: Array, wanted: int, **attributes: Any) -> Array:
    """The gradient of Σ dy·op(arrays) by input `wanted`."""

    def value(x: Array) -> float:
        moved = [x if index == wanted else array for index, array in enumerate(arrays)]
        return float((run(op, *moved, **attributes)[0] * dy).sum())

    return numeric(value, arrays[wanted])


@pytest.mark.parametrize(
    ("op", "saves_output", "attributes"),
    [
        ("Relu", True, {}),
        ("Relu", False, {}),
        ("Sigmoid", True, {}),
        ("Tanh", True, {}),
        ("Gelu", False, {}),
        ("Gelu", False, {"approximate": "tanh"}),
        ("Softmax", True, {"axis": 1}),
        ("LogSoftmax", True, {"axis": 0}),
    ],
)
def test_pointwise_and_row_gradients(op: str, saves_output: bool, attributes: dict[str, Any]) -> None:
    x, dy = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
    saved = run(op, x, **attributes)[0] if saves_output else x
    found = run(f"{op}Grad", dy, saved, **attributes)[0]
    np.testing.assert_allclose(found, differentiated(op, [x], dy, 0, **attributes), atol=1e-7)


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 4, 5, 6), (6, 4, 3, 2), {"pads": [1, 0, 1, 1], "strides": [2, 1]}),
        ((1, 4, 7), (6, 2, 3), {"group": 2, "dilations": [2]}),
        ((2, 3, 6, 6), (3, 1, 3, 3), {"group": 3, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((2, 3, 5), (4, 3, 1), {"strides": [2]}),
        ((1, 2, 3, 3, 3), (2, 2, 2, 2, 2), {}),
    ],
)
def test_convolution_gradients(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    arrays = [RNG.standard_normal(shape) for shape in (x, w, w[:1])]
    dy = RNG.standard_normal(run("Conv", *arrays, **attributes)[0].shape)
    found = run("ConvGrad", dy, arrays[0], arrays[1], count=3, **attributes)
    for index in range(3):
        np.testing.assert_allclose(found[index], differentiated("Conv", arrays, dy, index, **attributes), atol=1e-6)


def test_a_gradient_without_a_name_is_not_computed() -> None:
    x, w = RNG.standard_normal((1, 2, 5, 5)), RNG.standard_normal((3, 2, 3, 3))
    dy = RNG.standard_normal((1, 3, 3, 3))
    call = call_of("ConvGrad", [dy, x, w], 3)
    whole = [work.code.entry for work in cuda_kernel("ConvGrad")(call).work if isinstance(work, KernelCall)]
    call.unnamed = frozenset({0})
    part = [work.code.entry for work in cuda_kernel("ConvGrad")(call).work if isinstance(work, KernelCall)]
    assert whole == ["kg_conv_dx", *part]
    outputs = [np.full(shape, np.nan) for shape in (x.shape, w.shape, w.shape[:1])]
    cpu_kernel("ConvGrad")(call)([dy, x, w], outputs)
    assert np.isnan(outputs[0]).all()
    np.testing.assert_array_equal(outputs[1], run("ConvGrad", dy, x, w, count=3)[1])


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 0, 0, 1]},
        {"kernel_shape": [2, 2], "dilations": [2, 3]},
    ],
)
@pytest.mark.parametrize("option", ["plain", "other"])
def test_pooling_gradients(attributes: dict[str, Any], option: str) -> None:
    x = RNG.permutation(2 * 2 * 6 * 7).reshape(2, 2, 6, 7).astype(np.float64)  # no two elements alike
    other = option == "other"
    for op, extra in (("AveragePool", {"count_include_pad": int(other)}), ("MaxPool", {"storage_order": int(other)})):
        taken = {**attributes, **extra}
        count = 2 if op == "MaxPool" else 1
        y, *indices = run(op, x, count=count, **taken)
        dy = RNG.standard_normal(y.shape)
        found = run(f"{op}Grad", dy, x, *indices, **taken)[0]
        np.testing.assert_allclose(found, differentiated(op, [x], dy, 0, **taken), atol=1e-6)


@pytest.mark.parametrize("axis", [1, 2])
def test_layer_normalization_gradients(axis: int) -> None:
    shape = (3, 4, 5)
    arrays = [RNG.standard_normal(shape), RNG.standard_normal(shape[axis:]), RNG.standard_normal(shape[axis:])]
    mean = arrays[0].mean(tuple(range(axis, 3)), keepdims=True)
    inverse = 1 / np.sqrt(arrays[0].var(tuple(range(axis, 3)), keepdims=True) + 1e-5)
    dy = RNG.standard_normal(shape)
    found = run("LayerNormalizationGrad", dy, arrays[0], arrays[1], mean, inverse, count=3, axis=axis)
    for index in range(3):
        wanted = differentiated("LayerNormalization", arrays, dy, index, axis=axis)
        np.testing.assert_allclose(found[index], wanted, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_gradients_add_up_equal_rows(axis: int) -> None:
    x, indices = RNG.standard_normal((4, 5, 3)), np.array([[1, -1, 1], [0, 3, -3]])
    dy = RNG.standard_normal(run("Gather", x, indices, axis=axis)[0].shape)
    found = run("GatherGrad", np.array(x.shape), indices, dy, axis=axis)[0]
    np.testing.assert_allclose(found, differentiated("Gather", [x, indices], dy, 0, axis=axis), atol=1e-7)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignored", [None, 2, -1])
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_gradients(reduction: str, ignored: int | None, weighted: bool) -> None:
    scores, labels = RNG.standard_normal((3, 4, 2)), np.array([[0, 2], [3, -1], [1, 2]])
    labels = np.where(labels < 0, -1 if ignored == -1 else 0, labels)
    rest = [RNG.uniform(0.5, 2.0, 4)] if weighted else []
    attributes = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    loss, logs = run("SoftmaxCrossEntropyLoss", scores, labels, *rest, count=2, **attributes)
    dy = RNG.standard_normal(loss.shape)
    found = run("SoftmaxCrossEntropyLossGrad", dy, logs, labels, *rest, **attributes)[0]
    wanted = differentiated("SoftmaxCrossEntropyLoss", [scores, labels, *rest], dy, 0, **attributes)
    np.testing.assert_allclose(found, wanted, atol=1e-7)


def test_a_label_outside_is_a_fault() -> None:
    with pytest.raises(GraphError, match=r"label 4 is outside \[0, 3\]"):
        run("SoftmaxCrossEntropyLoss", np.zeros((2, 4)), np.array([0, 4]))


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "text"),
    [
        ("ReluGrad", [(2, 3), (3,)], {}, "input 1 has shape"),
        ("ConvGrad", [(1, 2, 3), (1, 2, 3), (2, 2, 2)], {}, "input 0 has shape"),
        ("AveragePoolGrad", [(1, 1, 3), (1, 1, 4)], {"kernel_shape": [3]}, "input 0 has shape"),
        ("SoftmaxCrossEntropyLoss", [(2, 3), (3,)], {}, "input 1 is float64"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(op: str, shapes: Any, attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(GraphError, match=text):
        call_of(op, [np.zeros(shape) for shape in shapes], **attributes)


def _optimizer_inputs(op: str) -> tuple[list[Array], int]:
    """Rate, count and two parameters of different shapes with what belongs to them; how many tensors lead."""
    kinds = {"SGD": 2, "Momentum": 3, "Adagrad": 3, "Adam": 4}[op]
    tensors = [RNG.uniform(0.1, 1.0, shape) for _ in range(kinds) for shape in ((2, 3), (40_000,))]
    head = [np.array(0.1)] if op == "SGD" else [np.array(0.1), np.array(2)]
    return [*head, *tensors], len(head)


@pytest.mark.parametrize("op", ["SGD", "Momentum", "Adagrad", "Adam"])
def test_S39_optimizers_may_write_over_what_they_read(op: str) -> None:
    arrays, lead = _optimizer_inputs(op)
    needed = {"alpha": 0.9, "beta": 0.8, "mode": "nesterov", "norm_coefficient": 0.1} if op == "Momentum" else {}
    count = len(arrays) - lead - 2
    apart = run(op, *arrays, count=count, **needed)
    call = call_of(op, list(arrays), count, **needed)
    owned = [array.copy() for array in arrays]
    cpu_kernel(op)(call)(owned, [owned[lead], owned[lead + 1], *owned[lead + 4 :]])
    for result, array in zip(apart, [owned[lead], owned[lead + 1], *owned[lead + 4 :]], strict=True):
        np.testing.assert_array_equal(result, array)


def test_sgd_is_its_formula() -> None:
    arrays, _ = _optimizer_inputs("SGD")
    rate, x, y, dx, dy = arrays
    found = run("SGD", *arrays, count=2, norm_coefficient=0.5)
    np.testing.assert_allclose(found[0], x - rate * (dx + 0.5 * x))
    np.testing.assert_allclose(found[1], y - rate * (dy + 0.5 * y))


@pytest.mark.parametrize("nesterov", [0, 1])
def test_apply_momentum_is_its_formula(nesterov: int) -> None:
    x, v, g = RNG.standard_normal((3, 7))
    found = run("ApplyMomentum", x, v, np.array(0.1), g, np.array(0.9), count=2, use_nesterov=nesterov)
    moved = 0.9 * v + g
    np.testing.assert_allclose(found[1], moved)
    np.testing.assert_allclose(found[0], x - 0.1 * (g + 0.9 * moved if nesterov else moved))


def test_optimizers_refuse_what_does_not_belong_together() -> None:
    x, rate, count = TensorType("float32", (3,)), TensorType("float32", ()), TensorType("int64", ())
    with pytest.raises(GraphError, match="4 tensors, a multiple of 3 is needed"):
        infer("Adagrad", "n", [rate, count, x, x, x, x], {}, 2)
    with pytest.raises(GraphError, match="gives 2 outputs, got 1"):
        infer("Adagrad", "n", [rate, count, x, x, x], {}, 1)
    with pytest.raises(GraphError, match="differ"):
        infer("Adagrad", "n", [rate, count, x, TensorType("float32", (4,)), x], {}, 2)


def _momentum_session(role: str) -> Session:
    kept = {"init": {"fill": 1.0}} if role == "parameter" else {}
    tensors = {
        "w": tensor(role, (3,), "float32", **kept),
        "v": tensor("parameter", (3,), "float32", init={"fill": 0.0}),
        "g": tensor("parameter", (3,), "float32", init={"fill": 1.0}),
        "rate": {"role": "constant", "dtype": "float32", "value": 0.5},
        "decay": {"role": "constant", "dtype": "float32", "value": 0.5},
    }
    nodes = [node("step", ["w", "v", "rate", "g", "decay"], ["w2", "v2"], op="ApplyMomentum")]
    return Session(graph(nodes, tensors, ["w2", "v2"]), device="cpu")


def test_S40_apply_momentum_updates_its_parameters_without_being_told() -> None:
    with _momentum_session("parameter") as session:
        w, v = np.float32(1), np.float32(0)
        for _ in range(3):
            v = v * np.float32(0.5) + 1
            w = w - np.float32(0.5) * v
        outputs = session.run(iterations=3).outputs
        assert outputs["w2"].tolist() == [w] * 3
        assert outputs["v2"].tolist() == [v] * 3


def test_S40_an_input_keeps_its_bytes() -> None:
    with _momentum_session("input") as session:
        given = np.ones(3, np.float32)
        first = session.run({"w": given}).outputs["w2"].copy()
        assert first.tolist() == [0.5] * 3
        assert session.run({"w": given}, iterations=1).outputs["w2"].tolist() == [0.25] * 3  # v alone has moved on
