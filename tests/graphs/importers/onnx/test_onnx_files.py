"""Model files: read without their weights, written with them, the same bytes each time; damage and escapes refused."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.data import load_array
from kgrun.graphs.errors import GraphError, UsageError
from kgrun.graphs.importers import import_source
from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.graphs.importers.onnx.model import write_onnx
from kgrun.graphs.importers.onnx.wire import LARGE, skeleton
from kgrun.graphs.load import load_graph
from kgrun.graphs.schema.graph import KernelGraph

from .models import Array, floats, run, save_text

onnx = pytest.importorskip("onnx")


def matmul_model(weight: Array, bias: Array | None = None) -> Any:
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y" if bias is None else "t"])]
    tensors = [numpy_helper.from_array(weight, "w")]
    if bias is not None:
        nodes.append(helper.make_node("Add", ["t", "b"], ["y"]))
        tensors.append(numpy_helper.from_array(bias, "b"))
    info = [helper.make_tensor_value_info(n, 1, ["n", s]) for n, s in zip("xy", weight.shape, strict=True)]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_large_weights_are_not_read_with_the_model(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    weight, bias = floats(100, 300), floats(300, seed=1)
    path.write_bytes(matmul_model(weight, bias).SerializeToString())
    small = skeleton(path)
    assert len(small) < 3_000 < weight.nbytes
    found = onnx.ModelProto.FromString(small)
    assert [tensor.data_location for tensor in found.graph.initializer] == [1, 0]
    assert np.array_equal(load_array("m.onnx#w", folder=tmp_path), weight)
    assert np.array_equal(load_array("m.onnx#b", folder=tmp_path), bias)


@pytest.mark.parametrize("stale", [False, True])
def test_weights_that_say_they_lie_in_the_model_are_read(stale: bool, tmp_path: Path) -> None:
    """As tools leave them that had them in another file: the location said, its place forgotten or not."""
    path = tmp_path / "m.onnx"
    weight = floats(100, 300)
    model = matmul_model(weight)
    model.graph.initializer[0].data_location = onnx.TensorProto.DEFAULT
    if stale:
        model.graph.initializer[0].external_data.add(key="location", value="weights.bin")
    path.write_bytes(model.SerializeToString())
    assert len(skeleton(path)) < 3_000
    assert np.array_equal(load_array("m.onnx#w", folder=tmp_path), weight)
    x = floats(2, 100, seed=2)
    np.testing.assert_allclose(run(onnx_graph(path), {"x": x})["y"], x @ weight, rtol=1e-4, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 3 * LARGE), min_size=1, max_size=5), st.booleans())
def test_the_skeleton_says_all_but_the_large_data(sizes: list[int], nested: bool) -> None:
    import tempfile

    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    arrays = [np.random.default_rng(at).integers(0, 256, size).astype(np.uint8) for at, size in enumerate(sizes)]
    nodes = [
        helper.make_node("Constant", [], [f"c{at}"], value=numpy_helper.from_array(array, f"c{at}"))
        for at, array in enumerate(arrays)
    ]
    graph = helper.make_graph(nodes, "inner", [], [helper.make_empty_tensor_value_info("c0")])
    if nested:
        outer = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([outer], "outer", [], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(model.SerializeToString())
        found = onnx.ModelProto.FromString(skeleton(path))
        whole = path.read_bytes()
    for branch in [a.g for a in found.graph.node[0].attribute] if nested else [found.graph]:
        for array, node in zip(arrays, branch.node, strict=True):
            tensor = node.attribute[0].t
            if array.nbytes >= LARGE:
                rows = {entry.key: entry.value for entry in tensor.external_data}
                start = int(rows["offset"])
                assert whole[start : start + int(rows["length"])] == array.tobytes()
                del tensor.external_data[:]
                tensor.ClearField("data_location")
                tensor.raw_data = array.tobytes()
    assert found == model


def test_imports_give_the_same_bytes_and_the_same_results(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(matmul_model(floats(40, 300), floats(300, seed=1)).SerializeToString())
    for name in "ab":
        (tmp_path / name).mkdir()
        made = import_source(path, tmp_path / name / "g.json", dims={"n": 3})
        assert [file.name for file in made.files] == ["g.json", "g.safetensors"]
    for file in ("g.json", "g.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    x = floats(3, 40, seed=2)
    wanted = run(onnx_graph(path), {"x": x})["y"]
    assert np.array_equal(run(load_graph(tmp_path / "a" / "g.json"), {"x": x})["y"], wanted)


def test_a_graph_has_a_line_a_tensor_and_a_line_a_node(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(matmul_model(floats(40, 300), floats(300, seed=1)).SerializeToString())
    import_source(path, tmp_path / "g.json")
    lines = (tmp_path / "g.json").read_text().splitlines()
    assert sum('"op": "MatMul"' in line and line.rstrip(",").endswith("}") for line in lines) == 1
    assert sum('"data": "g.safetensors#w"' in line for line in lines) == 1
    assert json.loads((tmp_path / "g.json").read_text())["kgrun"] == 1


def test_weights_in_other_files_are_read_from_there(tmp_path: Path) -> None:
    weight = floats(40, 300)
    model = matmul_model(weight)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert np.array_equal(load_array("m.onnx#w", folder=tmp_path), weight)
    (tmp_path / "out").mkdir()
    import_source(tmp_path / "m.onnx", tmp_path / "out" / "g.json")
    assert np.array_equal(load_array("g.safetensors#w", folder=tmp_path / "out"), weight)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname"])
def test_weights_outside_the_model_s_folder_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(48_000))
    (tmp_path / "model").mkdir()
    model = matmul_model(floats(40, 300))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    for key, value in (("location", location), ("length", "48000")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    (tmp_path / "model" / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(GraphError) as failure:
        onnx_graph(tmp_path / "model" / "m.onnx")
    assert failure.value.code == "KG371"


@pytest.mark.parametrize("change", ["short", "missing", "length"])
def test_weights_that_are_not_there_are_refused(tmp_path: Path, change: str) -> None:
    model = matmul_model(floats(40, 300))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    if change == "short":
        (tmp_path / "m.data").write_bytes(bytes(100))
    elif change == "missing":
        (tmp_path / "m.data").unlink()
    else:
        found = onnx.load(tmp_path / "m.onnx", load_external_data=False)
        for entry in found.graph.initializer[0].external_data:
            entry.value = "7" if entry.key == "length" else entry.value
        (tmp_path / "m.onnx").write_bytes(found.SerializeToString())
    with pytest.raises(GraphError) as failure:
        import_source(tmp_path / "m.onnx", tmp_path / "g.json")
    assert failure.value.code in ("KG372", "KG373")
    assert not (tmp_path / "g.json").exists()


@pytest.mark.parametrize("location", [None, "", "w\0x"])
def test_a_reference_that_names_no_file_reads_nothing(tmp_path: Path, location: str | None) -> None:
    model = matmul_model(floats(2, 3))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    if location is not None:
        tensor.external_data.add(key="location", value=location)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(GraphError) as failure:
        onnx_graph(tmp_path / "m.onnx")
    assert failure.value.code in ("KG372", "KG373")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_models_are_refused_or_read_but_never_a_traceback(data: Any) -> None:
    import tempfile

    whole = bytearray(matmul_model(floats(8, 60), floats(60)).SerializeToString())
    how = data.draw(st.sampled_from(["cut", "change", "noise"]))
    if how == "cut":
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    elif how == "change":
        for _ in range(data.draw(st.integers(1, 4))):
            whole[data.draw(st.integers(0, 300))] = data.draw(st.integers(0, 255))
    else:
        whole = bytearray(data.draw(st.binary(max_size=60)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(whole)
        try:
            found: KernelGraph | GraphError | UsageError = onnx_graph(path)
        except (GraphError, UsageError) as error:
            found = error
        assert found.folder == path.parent if isinstance(found, KernelGraph) else found.exit in (2, 3)


def test_the_source_is_never_replaced(tmp_path: Path) -> None:
    onnx.save(matmul_model(floats(40, 300)), tmp_path / "m.onnx", save_as_external_data=True, location="m.safetensors")
    with pytest.raises(UsageError, match="is part of the source"):
        import_source(tmp_path / "m.onnx", tmp_path / "m.json", force=True)


def test_typed_fields_and_sparse_weights_are_read(tmp_path: Path) -> None:
    helper = onnx.helper
    dense = np.zeros((4, 5), np.float32)
    dense[[1, 3], [2, 4]] = [1.5, -2.5]
    values = helper.make_tensor("s", 1, [2], [1.5, -2.5])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", 7, [2], [7, 19]), [4, 5])
    typed = helper.make_tensor("f", 10, [5], np.arange(5, dtype=np.float16))
    nodes = [
        helper.make_node("Cast", ["f"], ["c"], to=1),
        helper.make_node("Add", ["s", "c"], ["t"]),
        helper.make_node("Mul", ["t", "x"], ["y"]),
    ]
    info = [helper.make_tensor_value_info(name, 1, [4, 5]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [typed], sparse_initializer=[sparse])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    found = run(onnx_graph(tmp_path / "m.onnx"), {"x": np.ones((4, 5), np.float32)})["y"]
    assert np.array_equal(found, dense + np.arange(5, dtype=np.float32))


def test_element_types_that_kgrun_has_not_are_named(tmp_path: Path) -> None:
    save_text(tmp_path / "m.onnx", "g (float[2] x, string[2] s) => (float[2] y) { y = Relu(x) }")
    with pytest.raises(GraphError, match="element type string"):
        onnx_graph(tmp_path / "m.onnx")


def test_weights_may_lie_beyond_four_gibibytes(tmp_path: Path) -> None:
    weight, offset = floats(40, 300), 5 << 30
    model = matmul_model(weight)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    for key, value in (("location", "m.data"), ("offset", str(offset)), ("length", str(weight.nbytes))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with (tmp_path / "m.data").open("wb") as file:  # sparse: it takes no room
        file.seek(offset)
        file.write(weight.tobytes())
    assert np.array_equal(load_array("m.onnx#w", folder=tmp_path), weight)
    import_source(tmp_path / "m.onnx", tmp_path / "g.json")
    assert np.array_equal(load_array("g.safetensors#w", folder=tmp_path), weight)


def packed_model(path: Path, kind: int, shape: tuple[int, ...], typed: bool, op: str) -> Array:
    """A model of weights of a few bits, and what they are."""
    helper = onnx.helper
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    bits = 4 if kind in (onnx.TensorProto.INT4, onnx.TensorProto.UINT4) else 2
    low = -(2 ** (bits - 1)) if kind in (onnx.TensorProto.INT4, onnx.TensorProto.INT2) else 0
    weight = np.random.default_rng(0).integers(low, low + 2**bits, shape)
    tensor = onnx.numpy_helper.from_array(weight.astype(dtype), "w")
    if typed:
        tensor.int32_data.extend(np.frombuffer(tensor.raw_data, np.uint8).tolist())
        tensor.ClearField("raw_data")
    scale = onnx.numpy_helper.from_array(np.array(0.5, np.float32), "s")
    inputs = {"DequantizeLinear": ["w", "s"], "Cast": ["w"], "QuantizeLinear": ["x", "s", "w"]}[op]
    nodes = [helper.make_node(op, inputs, ["d"], "first", **({"to": 1} if op == "Cast" else {}))]
    if op != "QuantizeLinear":
        nodes.append(helper.make_node("Add", ["x", "d"], ["y"]))
    info = [helper.make_tensor_value_info(name, 1, None) for name in ("x", "y" if len(nodes) > 1 else "d")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, shape)], info[1:], [tensor, scale])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)]), path)
    return weight.astype(np.float32)


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (70, 999)])
@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT2", "UINT2"])
@pytest.mark.parametrize("typed", [False, True])
def test_weights_of_a_few_bits_become_bytes(tmp_path: Path, kind: str, shape: tuple[int, ...], typed: bool) -> None:
    path = tmp_path / "m.onnx"
    weight = packed_model(path, getattr(onnx.TensorProto, kind), shape, typed, "DequantizeLinear")
    x = floats(*shape)
    np.testing.assert_array_equal(run(onnx_graph(path), {"x": x})["y"], x + np.float32(0.5) * weight)
    import_source(path, tmp_path / "g.json")
    found = run(load_graph(tmp_path / "g.json"), {"x": x})["y"]
    np.testing.assert_array_equal(found, x + np.float32(0.5) * weight)


@pytest.mark.parametrize("external", [False, True])
def test_weights_of_a_few_bits_may_be_cast_and_lie_elsewhere(tmp_path: Path, external: bool) -> None:
    path = tmp_path / "m.onnx"
    weight = packed_model(path, onnx.TensorProto.INT4, (70, 999), False, "Cast")
    if external:
        onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    np.testing.assert_array_equal(run(onnx_graph(path), {"x": floats(70, 999) * 0})["y"], weight)


def test_results_of_a_few_bits_are_refused(tmp_path: Path) -> None:
    packed_model(tmp_path / "m.onnx", onnx.TensorProto.INT4, (), False, "QuantizeLinear")
    with pytest.raises(GraphError, match="element type int4") as caught:
        onnx_graph(tmp_path / "m.onnx")
    assert caught.value.code == "KG381"


@pytest.mark.parametrize("name", ["__metadata__", "w" * 1_500, "#", "a#b", " w\n"])
def test_weights_of_any_name_are_found_again(name: str, tmp_path: Path) -> None:
    weight, bias = floats(8, 20), floats(20, seed=1)  # too many to stand in the graph
    model = matmul_model(weight, bias)
    for tensor, new in zip(model.graph.initializer, (name, f"{name}b"), strict=True):
        tensor.name = new
    for node, new in zip(model.graph.node, (name, f"{name}b"), strict=True):
        node.input[1] = new
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    x = floats(2, 8, seed=2)
    write_onnx(path, tmp_path / "g.json", {})
    for graph in (onnx_graph(path), load_graph(tmp_path / "g.json")):
        np.testing.assert_allclose(run(graph, {"x": x})["y"], x @ weight + bias, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
def test_a_model_whose_name_is_no_utf8_becomes_a_file_that_loads(tmp_path: Path) -> None:
    model = matmul_model(floats(2, 3))
    model.graph.name = ""
    path = tmp_path / os.fsdecode(b"m\xff.onnx")
    path.write_bytes(model.SerializeToString())
    graph = load_graph(import_source(path, tmp_path / "g.json").files[0])
    assert (graph.name, graph.doc) == (r"m\xff", r"from m\xff.onnx, opset 17")
