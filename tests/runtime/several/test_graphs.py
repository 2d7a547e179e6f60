"""Several graphs in one session: outputs handed on in place, parameters once, one arena, resources released."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import DoesNotFit, GraphError, UsageError
from kgrun.graphs.load import load_graph
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.devices.cpu import CpuDevice
from kgrun.runtime.several import Graphs
from tests.support import graph, node, tensor

F = "float32"


def first(**changes: Any) -> KernelGraph:
    nodes = [
        node("a1", ["x"], ["t"], op="Softmax"),
        node("a2", ["t"], ["u"], op="Exp", attributes={}),
        node("a3", ["u"], ["h"], op="Softmax"),
    ]
    return graph(nodes, {"x": tensor("input", ["n"], F)}, ["h"], name="a", dims={"n": 1000}, **changes)


def second(name: str = "b", source: tuple[str, str] = ("a", "h"), **spec: Any) -> KernelGraph:
    taken = {"from_graph": {"graph": source[0], "output": source[1]}, **spec}
    nodes = [node("b1", ["h"], ["v"], op="Neg"), node("b2", ["v"], ["y"], op="Softmax")]
    return graph(nodes, {"h": taken}, ["y"], name=name)


X = np.linspace(-1, 1, 1000, dtype=F)


def apart(made: KernelGraph, **values: Any) -> dict[str, np.ndarray[Any, Any]]:
    with Session(made, device="cpu", values=values) as session:
        return session.run().outputs


def test_S13_S23_an_output_is_the_next_graphs_input_in_place() -> None:
    with Graphs([first(), second()], device="cpu", values={"a": {"x": X}}) as graphs:
        reports = graphs.run()
        h = apart(first(), x=X)["h"]
        plain = graph(
            [node("b1", ["h"], ["v"], op="Neg"), node("b2", ["v"], ["y"], op="Softmax")],
            {"h": tensor("input", (1000,), F)},
            ["y"],
        )
        assert reports["a"].outputs["h"].tobytes() == h.tobytes()
        assert reports["b"].outputs["y"].tobytes() == apart(plain, h=h)["y"].tobytes()
        program = graphs.sessions["b"].program
        buffer = program.buffers[program.slots["h"].buffer]
        assert buffer.nbytes == 0
        assert buffer.shares == {"h": "h of graph a"}
        (note,) = [w for w in program.warnings if w.code == "W-SHARED"]
        assert note.message == "'h' lies in h of graph a: aliased, 0 bytes"
        loaded_a, loaded_b = graphs.sessions["a"].loaded, graphs.sessions["b"].loaded
        assert loaded_b.address(program.slots["h"]) == loaded_a.address(loaded_a.program.slots["h"])
        assert reports["b"].upload.nbytes == 0


def test_new_inputs_flow_through() -> None:
    with Graphs([first(), second()], device="cpu", values={"a": {"x": X}}) as graphs:
        once = graphs.run()["b"].outputs["y"]
        again = graphs.run({"a": {"x": 3 * X}})["b"].outputs["y"]
        assert not np.array_equal(once, again)
        assert graphs.run({"a": {"x": X}})["b"].outputs["y"].tobytes() == once.tobytes()


def test_S50_static_memory_is_kept_and_dynamic_memory_overlaps() -> None:
    nodes = [
        node("c1", ["x"], ["t"], op="Transpose"),
        node("c2", ["t"], ["u"], op="Transpose"),
        node("c3", ["u"], ["y"], op="Transpose"),
    ]
    names = ("p", "q", "r")
    sizes = {"p": 1000, "q": 3000, "r": 2000}
    x = {n: tensor("input", [10, sizes[n] // 10], F, init={"uniform": [-1, 1]}) for n in names}
    made = [graph(nodes, {"x": x[name]}, ["y"], name=name) for name in names]
    device = CpuDevice()
    with Graphs(made, device=device) as graphs:
        graphs.run()
        plans = {name: session.plan for name, session in graphs.sessions.items()}
        dynamic = [plan.dynamic_bytes for plan in plans.values()]
        assert graphs.arena_bytes == max(dynamic) < sum(dynamic)
        assert device.memory_in_use() == graphs.peak_bytes == sum(p.static_bytes for p in plans.values()) + max(dynamic)
        spans = {}
        for name, session in graphs.sessions.items():
            places = [p for p in session.plan.placements if p.space == "dynamic"]
            starts = [session.loaded.address(session.program.slots[p.name]) for p in places]
            spans[name] = (min(starts), max(s + p.aligned for s, p in zip(starts, places, strict=True)))
        for one, other in itertools.combinations(spans.values(), 2):
            assert one[0] < other[1]
            assert other[0] < one[1]
    assert device.memory_in_use() == 0


def written(folder: Path, name: str, op: str) -> KernelGraph:
    np.save(folder / "w.npy", np.full(256, 2, F))
    (folder / f"{name}.yaml").write_text(
        f"""kgrun: 1
name: {name}
tensors:
  x: {{role: input, dtype: float32, shape: [256], init: {{fill: 3}}}}
  w: {{role: parameter, dtype: float32, shape: [256], data: w.npy}}
nodes: [{{name: n, op: {op}, inputs: [x, w], outputs: [y]}}]
outputs: [y]
"""
    )
    return load_graph(folder / f"{name}.yaml")


def test_S17_S24_a_parameter_of_the_same_file_is_there_once(tmp_path: Path) -> None:
    made = [written(tmp_path, "sum", "Add"), written(tmp_path, "product", "Mul")]
    with Graphs(made, device="cpu") as graphs:
        reports = graphs.run()
        assert [r.outputs["y"][0] for r in reports.values()] == [5, 6]
        assert reports["product"].plan.static_bytes == reports["sum"].plan.static_bytes - 1024
        one, other = (graphs.sessions[n].loaded for n in ("sum", "product"))
        assert one.address(one.program.slots["w"]) == other.address(other.program.slots["w"])
    with Graphs(made, device="cpu", values={"product": {"w": np.full(256, 7, F)}}) as graphs:
        reports = graphs.run()
        assert [r.outputs["y"][0] for r in reports.values()] == [5, 21]


def test_updates_of_a_shared_parameter_are_seen_by_the_other_graph(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.zeros(4, F))
    (tmp_path / "train.yaml").write_text(
        """kgrun: 1
name: train
tensors:
  w: {role: parameter, dtype: float32, shape: [4], data: w.npy}
  one: {role: constant, dtype: float32, value: [1]}
nodes: [{name: step, op: Add, inputs: [w, one], outputs: [w2], inplace: {w2: w}}]
outputs: [w2]
"""
    )
    (tmp_path / "test.yaml").write_text(
        """kgrun: 1
name: test
tensors: {w: {role: parameter, dtype: float32, shape: [4], data: w.npy}}
nodes: [{name: neg, op: Neg, inputs: [w], outputs: [y]}]
outputs: [y]
"""
    )
    made = [load_graph(tmp_path / name) for name in ("train.yaml", "test.yaml")]
    with Graphs(made, device="cpu") as graphs:
        assert graphs.run(iterations=3)["test"].outputs["y"].tolist() == [-3] * 4


def test_S147_resources_of_a_graph_are_released_on_request() -> None:
    device = CpuDevice()
    with Graphs([first(), second(), second("c")], device=device, values={"a": {"x": X}}) as graphs:
        graphs.run()
        with pytest.raises(UsageError, match="graph 'b' uses bytes of graph 'a'") as caught:
            graphs.release("a")
        assert caught.value.code == "KG218"
        held = device.memory_in_use()
        static = graphs.sessions["b"].plan.static_bytes
        graphs.release("b")
        assert device.memory_in_use() == held - static
        assert list(graphs.run()) == ["a", "c"]
        with pytest.raises(UsageError, match="no graph 'b'") as caught:
            graphs.release("b")
        assert caught.value.code == "KG259"
        graphs.release("c")
        graphs.release("a")
        assert device.memory_in_use() == 0


def test_a_chain_of_three_hands_on() -> None:
    last = second("c", ("b", "y"))
    with Graphs([first(), second(), last], device="cpu", values={"a": {"x": X}}) as graphs:
        reports = graphs.run(iterations=2)
    y = reports["b"].outputs["y"].astype(float)
    e = np.exp(-y - (-y).max())
    np.testing.assert_allclose(reports["c"].outputs["y"], e / e.sum(), rtol=1e-5)


def test_shapes_of_outputs_tell_dimensions() -> None:
    with Graphs([first(), second(shape=["m"], dtype=F)], device="cpu", values={"a": {"x": X[:300]}}) as graphs:
        assert graphs.run()["b"].outputs["y"].shape == (300,)


@pytest.mark.parametrize(
    ("made", "words", "code"),
    [
        ([second(), first()], "does not run before 'b'", "KG343"),
        ([first(), second(source=("aa", "h"))], "graph 'aa'", "KG343"),
        ([first(), second(source=("a", "t"))], "no output 't'", "KG343"),
        ([first(), second(dtype="float16")], "is declared float16", "KG352"),
        ([first(), second(shape=[7], dtype=F)], r"is declared \[7\]", "KG352"),
    ],
)
def test_S23_what_does_not_fit_is_said(made: list[KernelGraph], words: str, code: str) -> None:
    device = CpuDevice()
    with pytest.raises(GraphError, match=words) as caught:
        Graphs(made, device=device, values={"a": {"x": X}})
    assert caught.value.code == code
    assert device.memory_in_use() == 0


def test_names_dimensions_and_limits() -> None:
    with pytest.raises(UsageError, match="two graphs are called 'a'"):
        Graphs([first(), first()], device="cpu")
    with pytest.raises(UsageError, match="no graph has a dimension 'k'"):
        Graphs([first(), second()], device="cpu", dims={"k": 1})
    device = CpuDevice()
    with pytest.raises(DoesNotFit, match="beyond the limit of 5,000") as caught:
        Graphs([first(), second()], device=device, memory_limit=5000)
    assert (caught.value.code, device.memory_in_use()) == ("KG401", 0)


def test_wishes_for_offload_do_not_move_what_is_shared() -> None:
    made = first()
    made = made.model_copy(update={"nodes": [each.model_copy(update={"offload": True}) for each in made.nodes]})
    with Graphs([made, second()], device="cpu", values={"a": {"x": X}}) as graphs:
        assert graphs.sessions["a"].program.offload is None
        assert graphs.run()["b"].outputs["y"].tobytes() == _plain()["y"].tobytes()


def _plain() -> dict[str, np.ndarray[Any, Any]]:
    with Graphs([first(), second()], device="cpu", values={"a": {"x": X}}) as graphs:
        return graphs.run()["b"].outputs


def test_an_array_for_what_lies_in_another_graph_is_refused() -> None:
    with Graphs([first(), second()], device="cpu", values={"a": {"x": X}}) as graphs:
        with pytest.raises(UsageError, match="'h' lies in h of graph a") as caught:
            graphs.run({"b": {"h": X}})
        assert caught.value.code == "KG213"


@pytest.mark.parametrize("spec", [{}, {"dtype": F}, {"dtype": F, "shape": [1000]}])
def test_an_array_of_its_own_has_the_type_of_the_output_unless_one_is_declared(spec: dict[str, Any]) -> None:
    graphs = [first(), second(**spec)]
    with Graphs(graphs, device="cpu", values={"a": {"x": X}, "b": {"h": np.zeros(1000, F)}}) as session:
        assert set(session.run()["b"].outputs["y"].tolist()) == {np.float32(0.001)}
        assert "W-SHARED" not in [warning.code for warning in session.sessions["b"].program.warnings]
        assert set(session.run({"b": {"h": np.ones(1000, F)}})["b"].outputs["y"].tolist()) == {np.float32(0.001)}
    with pytest.raises(GraphError, match=r"'h' has shape \[1000\], the given array \[3\]") as caught:
        Graphs(graphs, device="cpu", values={"a": {"x": X}, "b": {"h": np.ones(3, F)}}).run()
    assert str(caught.value.where).endswith("tensors.h")
