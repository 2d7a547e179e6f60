"""Operators as older opsets had them: each must compute what ONNX's evaluator says of that opset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.graphs.operators import all_schemas

from .models import Array, agree, floats, ops, run, save_text

onnx = pytest.importorskip("onnx")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -2])
def test_softmax_before_opset_13_takes_all_axes_from_one_on(model: Path, op: str, axis: int | None) -> None:
    given = "" if axis is None else f"<axis = {axis}>"
    save_text(model, f"g (float[n, 3, 4] x) => (float[n, 3, 4] y) {{ y = {op}{given}(x) }}", 11)
    x = floats(2, 3, 4)
    at = 1 if axis is None else axis % 3
    rows = x.reshape(int(np.prod(x.shape[:at])), -1).astype(np.float64)
    softmax = np.exp(rows - rows.max(1, keepdims=True))
    softmax /= softmax.sum(1, keepdims=True)
    wanted = {"Softmax": softmax, "LogSoftmax": np.log(softmax), "Hardmax": softmax == softmax.max(1, keepdims=True)}
    found = run(onnx_graph(model), {"x": x})["y"]
    np.testing.assert_allclose(found, wanted[op].reshape(x.shape), rtol=1e-5)


def test_softmax_of_the_last_axis_needs_no_other_node(model: Path) -> None:
    save_text(model, "g (float[n, 3] x) => (float[n, 3] y) { y = Softmax(x) }", 11)
    assert ops(onnx_graph(model)) == ["Softmax"]


OLD = {
    "clip": (6, "y = Clip<min = -0.5, max = 0.5>(x)", ()),
    "clip to the largest float": (6, "y = Clip<min = 0.0, max = 3.4028234663852886e38>(x)", ()),
    "pad": (9, "y = Pad<pads = [0, 1, 0, 1, 0, 2], value = 1.5>(x)", ()),
    "pad by reflection": (9, 'y = Pad<pads = [0, 1, 0, 0, 1, 2], mode = "reflect">(x)', ()),
    "slice": (9, "y = Slice<starts = [0, -3], ends = [1, 9], axes = [0, 2]>(x)", ()),
    "slice without axes": (9, "y = Slice<starts = [0, 1], ends = [1, 3]>(x)", ()),
    "squeeze": (11, "u = Unsqueeze<axes = [0, 4]>(x) \n y = Squeeze<axes = [0]>(u)", ()),
    "reduce": (11, "y = ReduceMean<axes = [-1, 0], keepdims = 0>(x)", ()),
    "reduce all": (11, "y = ReduceSum(x)", ()),
    "split": (11, "a, b = Split<axis = 2, split = [1, 3]>(x) \n y = Concat<axis = 2>(b, a)", ()),
    "split evenly": (11, "a, b = Split<axis = 2>(x) \n y = Concat<axis = 2>(b, a)", ()),
    "dropout": (7, "d, m = Dropout<ratio = 0.4>(x) \n y = Relu(d)", ()),
    "cast like": (15, "c = Constant<value_ints = [1]>() \n i = Cast<to = 6>(x) \n y = CastLike(i, x)", ()),
    "gemm": (7, "f = Flatten(x) \n y = Gemm<transB = 1, alpha = 0.5>(f, w, b)", ((5, 12), (5,))),
    "upsample": (7, "y = Upsample<scales = [1.0, 1.0, 2.0]>(x)", ()),
    "upsample by an input": (9, "k = Constant<value_floats = [1.0, 1.0, 2.0]>() \n y = Upsample(x, k)", ()),
    "resize": (10, "k = Constant<value_floats = [1.0, 2.0, 3.0]>() \n y = Resize(x, k)", ()),
    "top k": (9, "v, i = TopK<k = 2, axis = 2>(x) \n y = Identity(v)", ()),
}


@pytest.mark.parametrize("name", OLD)
@pytest.mark.parametrize("bound", [True, False])
def test_old_forms(model: Path, name: str, bound: bool) -> None:
    opset, text, weights = OLD[name]
    needs = {"upsample": "Resize", "upsample by an input": "Resize", "resize": "Resize", "top k": "TopK"}.get(name)
    if needs and needs not in all_schemas():
        pytest.skip(f"kgrun has no {needs} yet")
    arrays: dict[str, Array] = {"x": floats(2, 3, 4)}
    arrays |= {key: floats(*shape, seed=at) for at, (key, shape) in enumerate(zip("wb", weights, strict=False), 1)}
    shapes = {key: ", ".join(map(str, array.shape)) for key, array in arrays.items()} | {"x": "n, 3, 4"}
    inputs = ", ".join(f"float[{shape}] {key}" for key, shape in shapes.items())
    save_text(model, f"g ({inputs}) => (float[a, b, c] y) {{ {text} }}", opset)
    if name.startswith(("upsample", "resize")):
        # The evaluator has no such operators: pixels are repeated.
        found = run(onnx_graph(model, dims={"n": 2} if bound else {}), arrays)["y"]
        repeats = {"resize": (2, 3)}.get(name, (1, 2))
        np.testing.assert_array_equal(found, arrays["x"].repeat(repeats[0], 1).repeat(repeats[1], 2))
        return
    agree(model, arrays, {"n": 2} if bound else {})


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("scales", [[1.0, 0.6], [1.7, 0.6], [2.0, 3.0], [0.5, 0.3]])
def test_resize_of_opset_10_rounds_up_where_an_axis_shrinks(model: Path, scales: list[float], known: bool) -> None:
    given = np.array(scales, np.float32)
    constant = f"s = Constant<value_floats = {scales}>() \n" * known
    save_text(
        model,
        f"g (float[5, 7] x{', float[2] s' * (not known)}) => (float[a, b] y) {{ {constant} y = Resize(x, s) }}",
        10,
    )
    x = floats(5, 7)
    inputs = {"x": x} if known else {"x": x, "s": given}
    graph = onnx_graph(model, values={} if known else {"s": given})
    places = [
        np.minimum((np.floor if scale >= 1 else np.ceil)(np.arange(int(n * scale), dtype=np.float32) / scale), n - 1)
        for n, scale in zip(x.shape, given, strict=True)
    ]
    np.testing.assert_array_equal(run(graph, inputs)["y"], x[np.ix_(*[each.astype(int) for each in places])])


def test_batch_normalization_by_place_is_refused(model: Path) -> None:
    text = "y = BatchNormalization<spatial = 0>(x, s, s, s, s)"
    save_text(model, f"g (float[2, 3] x, float[3] s) => (float[2, 3] y) {{ {text} }}", 7)
    with pytest.raises(GraphError, match="spatial"):
        onnx_graph(model)


def test_batch_normalization_with_outputs_that_nothing_reads(model: Path) -> None:
    text = "y, m, v = BatchNormalization(x, s, s, s, s)"
    save_text(model, f"g (float[2, 3] x, float[3] s) => (float[2, 3] y) {{ {text} }}", 9)
    assert len(onnx_graph(model).nodes[0].outputs) == 1


def test_the_mask_of_an_old_dropout_has_the_type_of_its_input(model: Path) -> None:
    save_text(model, "g (float16[2] x) => (float16[2] y, float16[2] m) { y, m = Dropout(x) }", 7)
    found = run(onnx_graph(model), {"x": np.ones(2, np.float16)})
    assert (found["m"].dtype, found["m"].shape) == (np.float16, (2,))


@pytest.mark.parametrize(("scale", "bias"), [((3, 4), (3, 4)), ((2, 3, 4), (4,)), ((1, 1, 4), None), ((4,), (3, 1))])
def test_layer_normalization_may_scale_more_than_it_normalises(
    model: Path, scale: tuple[int, ...], bias: tuple[int, ...] | None
) -> None:
    arrays = {"x": floats(2, 3, 4), "s": floats(*scale, seed=1)}
    arrays |= {} if bias is None else {"b": floats(*bias, seed=2)}
    inputs = ", ".join(f"float{list(array.shape)} {name}" for name, array in arrays.items())
    text = f"y, m, i = LayerNormalization({', '.join(arrays)})"
    save_text(model, f"g ({inputs}) => (float[2, 3, 4] y, float[2, 3, 1] m, float[2, 3, 1] i) {{ {text} }}", 17)
    agree(model, arrays)


def test_group_normalization_of_opset_18_scales_groups(model: Path) -> None:
    text = "y = GroupNormalization<num_groups = 2>(x, s, b)"
    save_text(model, f"g (float[1, 4, 3] x, float[2] s, float[2] b) => (float[1, 4, 3] y) {{ {text} }}", 20)
    try:
        graph = onnx_graph(model)
    except GraphError as error:
        pytest.skip(error.message)
    x, s, b = floats(1, 4, 3), floats(2, seed=1), floats(2, seed=2)
    groups = x.reshape(1, 2, -1)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    wanted = (normal * s[:, None] + b[:, None]).reshape(x.shape)
    np.testing.assert_allclose(run(graph, {"x": x, "s": s, "b": b})["y"], wanted, rtol=1e-4, atol=1e-5)


def test_models_of_older_opsets_import_where_their_operators_never_changed(model: Path) -> None:
    save_text(model, "g (bool[2] x) => (bool[2] y) { y = Not(x) }", 1)
    assert run(onnx_graph(model), {"x": np.array([True, False])})["y"].tolist() == [False, True]


def test_an_attribute_at_its_default_may_be_one_that_kgrun_has_not(model: Path) -> None:
    text = "y = MaxPool<kernel_shape = [3], storage_order = 0>(x)"
    save_text(model, f"g (float[1, 1, 4] x) => (float[1, 1, 2] y) {{ {text} }}")
    agree(model, {"x": floats(1, 1, 4)})


def test_numbers_are_written_with_few_digits(model: Path) -> None:
    save_text(model, "g (float[2] x) => (float[2] y) { y = LeakyRelu<alpha = 0.1>(x) }")
    assert onnx_graph(model).nodes[0].attributes == {"alpha": 0.1}  # type: ignore[union-attr]


UNREAD = {
    "sizes as an attribute": (11, "a, b, c = Split<axis = 0, split = [1, 2, 3]>(x)"),
    "even parts by their number": (13, "a, b, c = Split<axis = 0>(x)"),
    "sizes as an input": (13, "s = Constant<value_ints = [1, 2, 3]>() \n a, b, c = Split<axis = 0>(x, s)"),
    "a number of parts": (21, "a, b, c = Split<axis = 0, num_outputs = 3>(x)"),
}


@pytest.mark.parametrize("read", ["a", "b", "c"])
@pytest.mark.parametrize("name", UNREAD)
@pytest.mark.parametrize("extent", ["6", "n"])
def test_parts_of_a_split_that_nothing_reads_still_count(model: Path, name: str, read: str, extent: str) -> None:
    opset, text = UNREAD[name]
    save_text(model, f"g (float[{extent}, 4] x) => (float[a, b] y) {{ {text} \n y = Relu({read}) }}", opset)
    agree(model, {"x": floats(6, 4)})


def test_a_bound_that_every_float_keeps_is_none(model: Path) -> None:
    text = "g (float[n] x) => (float[n] y) { y = Clip<min = 0.0, max = 3.4028234663852886e38>(x) }"
    save_text(model, text, 6)
    (node,) = onnx_graph(model).nodes
    assert getattr(node, "attributes", None) == {"min": 0.0}
