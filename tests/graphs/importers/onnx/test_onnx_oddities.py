"""What real models do that a plain reading of the format would not expect, a test each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kgrun.graphs.data import load_array
from kgrun.graphs.errors import GraphError, UsageError
from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.runtime.session import Session

from .models import agree, floats, ops, run, save_text

onnx = pytest.importorskip("onnx")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def test_weights_may_be_constant_nodes(model: Path) -> None:
    weight = floats(8, 4)
    node = onnx.helper.make_node("Constant", [], ["w"], value=onnx.numpy_helper.from_array(weight))
    add = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    info = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [2, 8]), ("y", [2, 4]))]
    made = onnx.helper.make_graph([node, add], "g", info[:1], info[1:])
    onnx.save(onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 17)]), model)
    graph = agree(model, {"x": floats(2, 8, seed=1)})
    assert ops(graph) == ["MatMul"]
    assert graph.tensors["w"].data == "model.onnx#w"
    assert np.array_equal(load_array("model.onnx#w", folder=model.parent), weight)


def test_a_dimension_of_minus_one_is_unbound(model: Path) -> None:
    save_text(model, "g (float[a, 3] x) => (float[a, 3] y) { y = Relu(x) }")
    message = onnx.load(model)
    message.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    onnx.save(message, model)
    graph = onnx_graph(model)
    assert graph.tensors["x"].shape == ["x_0", 3]
    assert run(graph, {"x": floats(5, 3)})["y"].shape == (5, 3)


@pytest.mark.parametrize("text", ["", "?"])
def test_anonymous_dimensions_are_named_after_their_input(model: Path, text: str) -> None:
    save_text(model, "g (float[a, 3, b] x, float[a, 3, b] z) => (float[a, 3, b] y) { y = Add(x, z) }")
    message = onnx.load(model)
    for info in message.graph.input:
        for axis in (0, 2):
            info.type.tensor_type.shape.dim[axis].dim_param = text
    onnx.save(message, model)
    graph = onnx_graph(model)
    assert [graph.tensors[n].shape for n in "xz"] == [["x_0", 3, "x_2"], ["z_0", 3, "z_2"]]
    assert list(graph.dims) == ["x_0", "x_2", "z_0", "z_2"]


def test_dimension_names_become_identifiers_and_the_model_s_are_kept(model: Path) -> None:
    save_text(model, "g (float[n, m] x) => (float[n, m] y) { y = Relu(x) }")
    message = onnx.load(model)
    message.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch size"
    message.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "min"
    onnx.save(message, model)
    graph = onnx_graph(model)
    assert graph.tensors["x"].shape == ["batch_size", "d_min"]
    assert [getattr(graph.dims[name], "doc", None) for name in graph.dims] == ["batch size", "min"]
    for given in ({"batch size": 4}, {"batch_size": 4}):
        assert onnx_graph(model, dims=given).tensors["x"].shape == [4, "d_min"]
    with pytest.raises(UsageError, match="no dimension 'batch'") as failure:
        onnx_graph(model, dims={"batch": 4})
    assert failure.value.code == "KG221"


def test_dimensions_may_be_expressions(model: Path) -> None:
    save_text(model, "g (float[h] x, float[k] z) => (float[k] y) { y = Relu(z) }")
    message = onnx.load(model)
    message.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "floor(h/2 - 1/2) + 1"
    onnx.save(message, model)
    graph = onnx_graph(model)
    assert graph.tensors["z"].shape == ["(h - 1) // 2 + 1"]
    assert onnx_graph(model, dims={"h": 9}).tensors["z"].shape == [5]


def test_opsets_of_domains_that_nothing_uses_do_not_matter(model: Path) -> None:
    header = 'ir_version: 10, opset_import: ["" : 17, "ai.onnx.ml" : 3, "com.vendor" : 99]'
    save_text(model, "g (float[2] x) => (float[2] y) { y = Relu(x) }", header=header)
    assert ops(agree(model, {"x": floats(2)})) == ["Relu"]


def test_names_keep_their_characters(model: Path) -> None:
    save_text(model, "g (float[2] x) => (float[2] y) { t = Relu(x) \n y = Neg(t) }")
    message = onnx.load(model)
    odd = {"x": "serving_default:0/é#", "t": "a;b/c:1", "y": "out put"}
    for node in message.graph.node:
        node.input[:] = [odd[name] for name in node.input]
        node.output[:] = [odd[name] for name in node.output]
    message.graph.input[0].name, message.graph.output[0].name = odd["x"], odd["y"]
    onnx.save(message, model)
    graph = agree(model, {odd["x"]: floats(2)})
    assert graph.nodes[0].outputs == ["a;b/c:1"]


def test_int8_weights_stay_int8(model: Path) -> None:
    weight = np.resize(np.arange(-64, 64, dtype=np.int8), (16, 128))
    text = "g (float[2, 16] x) => (float[2, 128] y) { c = Cast<to = 1>(w) \n s = Mul(c, k) \n y = MatMul(x, s) }"
    save_text(model, text)
    message = onnx.load(model)
    message.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    message.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.1), "k"))
    onnx.save(message, model)
    graph = agree(model, {"x": floats(2, 16)})
    assert ops(graph) == ["Cast", "Mul", "MatMul"]
    assert graph.tensors["w"].dtype == "int8"


def test_branches_of_an_if_may_differ_in_rank(model: Path) -> None:
    text = """g (float[n, 1, 3] x) => (float[a, b] y) {
        shape = Shape(x)
        one = Constant<value_ints = [1]>()
        size = Gather(shape, one)
        is_one = Equal(size, one)
        picked = If (is_one) <
            then_branch = t () => (float[n, 3] a) { a = Squeeze(x, one) },
            else_branch = e () => (float[n, 1, 3] b) { b = Identity(x) }
        >
        y = Relu(picked)
    }"""
    save_text(model, text)
    graph = agree(model, {"x": floats(4, 1, 3)}, {"n": 4})
    assert ops(graph) == ["Squeeze", "Relu"]


def test_axes_may_be_attributes_or_inputs(model: Path) -> None:
    old = "g (float[2, 3] x) => (float[2] y) { u = Unsqueeze<axes = [0]>(x) \n s = Squeeze<axes = [0]>(u)"
    old += "\n y = ReduceSum<axes = [1], keepdims = 0>(s) }"
    new = "g (float[2, 3] x) => (float[2] y) <int64[1] z = {0}, int64[1] o = {1}> { u = Unsqueeze(x, z)"
    new += "\n s = Squeeze(u, z) \n y = ReduceSum<keepdims = 0>(s, o) }"
    graphs = [agree(save_text(model, text, opset), {"x": floats(2, 3)}) for text, opset in ((old, 11), (new, 13))]
    rows = [[(node.op, node.attributes, len(node.inputs)) for node in graph.nodes] for graph in graphs]  # type: ignore[union-attr]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("number", ["-3.4028234663852886e38", "3.4028234663852886e38", "1e-45", "inf", "-inf", "nan"])
def test_folded_numbers_may_be_as_large_and_small_as_float32_has_them(model: Path, number: str) -> None:
    """Masks are made of the least float32."""
    save_text(
        model,
        f"""g (float[n, 3] x) => (float[n, 3] y) {{
          s = Constant<value_ints = [3]>()
          m = ConstantOfShape<value = float[1] {{{number}}}>(s)
          y = Add(x, m)
        }}""",
    )
    agree(model, {"x": floats(2, 3)})


def test_identity_and_constant_vanish(model: Path) -> None:
    lines = ["t0 = Identity(x)", *(f"t{i} = Identity(t{i - 1})" for i in range(1, 50))]
    lines += ["k = Constant<value_float = 2.0>()", "k1 = Identity(k)", "z = Mul(t49, k1)", "y = Identity(z)"]
    save_text(model, "g (float[2] x) => (float[2] y) {" + "\n".join(lines) + "}")
    graph = agree(model, {"x": floats(2)})
    assert ops(graph) == ["Mul"]
    assert graph.nodes[0].outputs == ["y"]


def test_dropout_vanishes_and_its_mask_is_true(model: Path) -> None:
    save_text(model, "g (float[2] x) => (float[2] y) { d = Dropout<ratio = 0.3>(x) \n y = Relu(d) }", 10)
    assert ops(agree(model, {"x": floats(2)})) == ["Relu"]
    save_text(model, "g (float[2] x) => (float[2] y, bool[2] m) { y, m = Dropout(x) }", 13)
    agree(model, {"x": floats(2)})
    text = "g (float[2] x) => (float[2] y) <float r = {0}, bool t = {1}> { d = Dropout(x, r, t) \n y = Relu(d) }"
    assert ops(onnx_graph(save_text(model, text, 13))) == ["Relu"]  # trained, but nothing is dropped
    with pytest.raises(GraphError, match="inference only"):
        onnx_graph(save_text(model, text.replace("{0}", "{0.5}"), 13))


def test_outputs_that_are_inputs_constants_or_the_same(model: Path) -> None:
    text = """g (float[2] x) => (float[2] a, float[2] b, float[2] c, float[3] k, float[2] same)
    <float[3] w = {1, 2, 3}> {
        t = Relu(x)
        a = Identity(t)
        b = Identity(t)
        c = Neg(t)
        k = Identity(w)
        same = Identity(x)
    }"""
    save_text(model, text)
    agree(model, {"x": floats(2)})


def test_initializers_may_be_listed_as_inputs(model: Path) -> None:
    header = 'ir_version: 3, opset_import: ["" : 9]'
    save_text(
        model, "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }", header=header
    )
    assert [name for name, spec in onnx_graph(model).tensors.items() if spec.role == "input"] == ["x"]
    assert run(onnx_graph(model), {"x": np.ones(2, np.float32)})["y"].tolist() == [1, 2]


def test_shape_computations_are_folded_when_dimensions_are_bound(model: Path) -> None:
    text = """g (float[n, 4, m] x) => (float[n, k] y) <int64[1] zero = {0}, int64[1] last = {-1}> {
        shape = Shape(x)
        batch = Gather(shape, zero)
        wanted = Concat<axis = 0>(batch, last)
        y = Reshape(x, wanted)
    }"""
    save_text(model, text)
    x = floats(2, 4, 5)
    assert ops(agree(model, {"x": x})) == ["Shape", "Gather", "Concat", "Reshape"]
    bound = agree(model, {"x": x}, {"n": 2, "m": 5})
    assert ops(bound) == ["Reshape"]
    assert bound.tensors["wanted"].value == [2, -1]
    assert getattr(bound.dims["n"], "max", None) == 2


def test_an_opset_out_of_range_is_refused(model: Path) -> None:
    save_text(model, "g (float[2] x) => (float[2] y) { y = BatchNormalization(x, x, x, x, x) }", 6)
    with pytest.raises(GraphError, match="opset 6") as failure:
        onnx_graph(model)
    assert failure.value.code == "KG382"


def test_all_that_is_unsupported_is_listed(model: Path) -> None:
    header = 'ir_version: 10, opset_import: ["" : 17, "com.vendor" : 1]'
    text = """g (float[2] x) => (float[2] y) {
        [first] a = com.vendor.Fuse(x)
        [second] b = Relu(a)
        [third] y = com.vendor.Melt(b)
    }"""
    save_text(model, text, header=header)
    with pytest.raises(GraphError) as failure:
        onnx_graph(model)
    assert failure.value.code == "KG381"
    listed = [failure.value, *failure.value.others]
    assert [("Fuse" in e.message, "Melt" in e.message) for e in listed] == [(True, False), (False, True)]
    assert "'first'" in listed[0].message
    assert str(listed[1].where).endswith("graph.node[2]")


def test_long_names_are_cut_and_kept_whole_beside(model: Path) -> None:
    save_text(model, "g (float[2] x) => (float[2] y) { t = Relu(x) \n u = Exp(x) \n y = Add(t, u) }")
    message = onnx.load(model)
    long = {"x": "x" * 1_500, "t": "t" * 1_500, "u": "t" * 1_400 + "u" * 100}
    for node in message.graph.node:
        node.name = f"{node.op_type}{'n' * 1_200}"
        node.input[:] = [long.get(name, name) for name in node.input]
        node.output[:] = [long.get(name, name) for name in node.output]
    message.graph.input[0].name = long["x"]
    onnx.save(message, model)
    graph = onnx_graph(model)
    docs = {spec.doc: name for name, spec in graph.tensors.items()}
    assert set(docs) == set(long.values())
    assert len(set(docs.values())) == 3
    assert all(len(name) <= 1_000 for name in docs.values())
    assert graph.nodes[0].doc == f"Relu{'n' * 1_200}"
    assert run(graph, {docs[long["x"]]: np.zeros(2, np.float32)})["y"].tolist() == [1, 1]


def test_a_graph_says_where_it_comes_from(model: Path) -> None:
    save_text(model, "g (float[2] x) => (float[2] y) { y = Relu(x) }", 17)
    assert onnx_graph(model).doc == "from model.onnx, opset 17"


def test_an_empty_shape_is_known_when_dimensions_are_bound_later(model: Path) -> None:
    """So that the graph can be planned: Reshape to no axes needs it."""
    save_text(
        model,
        """g (float[n] x) => (float y) {
          s = Constant<value = int64[0] {}>()
          a = ReduceSum<keepdims = 1>(x)
          y = Reshape(a, s)
        }""",
    )
    graph = agree(model, {"x": floats(3)})
    with Session(graph, device="cpu", dims={"n": 3}) as session:
        assert session.plan.peak_bytes > 0
