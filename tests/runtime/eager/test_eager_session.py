"""Graphs run node by node: the same bits as planned ones, shapes and branches that only the run tells, no leaks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.errors import DoesNotFit, GraphError, KgrunError, UsageError
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.eager import EagerSession
from kgrun.runtime.sessions import open_session
from tests.graphs.random_graphs import random_graph
from tests.support import graph, node, tensor

F = "float32"
X = {"x": tensor("input", ["n"], F)}


def row(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, F)


def constant(value: object, dtype: str = F) -> dict[str, object]:
    return {"role": "constant", "dtype": dtype, "value": value}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), nodes=st.integers(1, 30))
def test_S127_U9_single_and_planned_give_the_same_bits(seed: int, nodes: int) -> None:
    made = KernelGraph.model_validate(random_graph(random.Random(seed), nodes))
    with Session(made, device="cpu") as session:
        planned = session.run(per_step=False)
    with EagerSession(made, device="cpu") as eager:
        single = eager.run(iterations=2, poison=True)
    assert planned.outputs.keys() == single.outputs.keys()
    for name, array in planned.outputs.items():
        assert array.tobytes() == single.outputs[name].tobytes(), name
    assert single.plan.dynamic_bytes <= single.plan.no_reuse_bytes


def test_U4_S133_a_thousand_runs_leave_nothing_behind() -> None:
    nodes = [node("a", ["x"], ["t"], op="Relu"), node("b", ["t", "t"], ["y"], op="Add")]
    with EagerSession(graph(nodes, X, ["y"]), device="cpu", values={"x": row(1, -2, 3)}) as session:
        session.run()
        pool, held, peak = session.store.pool, session.device.memory_in_use(), session.device.peak_memory()
        used = pool.statistics().used
        session.run(iterations=1000)
        assert (session.device.memory_in_use(), session.device.peak_memory()) == (held, peak)
        assert pool.statistics().used == used
        assert pool.check() == []
        assert sorted(holder.name for holder in pool.leaks()) == ["x", "y"]
        device = session.device
    assert device.memory_in_use() == 0


def test_S82_shapes_that_the_elements_decide() -> None:
    nodes = [
        node("relu", ["x"], ["r"], op="Relu"),
        node("places", ["r"], ["p"], op="NonZero"),
        node("turned", ["p"], ["q"], op="Transpose"),
        node("size", ["q"], ["s"], op="Shape"),
    ]
    with open_session(graph(nodes, X, ["q", "s"]), device="cpu", values={"x": row(1, -1, 2, 3)}) as session:
        assert isinstance(session, EagerSession)
        report = session.run(iterations=3)
        assert [len(step.samples) for step in report.steps] == [3, 3, 3]
        assert report.outputs["q"].tolist() == [[0], [2], [3]]
        assert report.outputs["s"].tolist() == [3, 1]
        assert [step.name for step in report.steps] == ["relu", "places", "turned"]
        assert "W-NODE-BY-NODE" in [w.code for w in report.warnings]
        assert session.run({"x": row(-1, -1, -1, 5)}).outputs["q"].tolist() == [[3]]


def test_S82_a_shape_that_a_node_computes_is_read_back() -> None:
    tensors = X | {"two": constant([2], "int64")}
    nodes = [
        node("places", ["x"], ["p"], op="NonZero"),
        node("size", ["p"], ["s"], op="Shape"),
        node("turn", ["s", "back"], ["t"], op="Gather"),
        node("reshape", ["p", "t"], ["y"], op="Reshape"),
    ]
    made = graph(nodes, tensors | {"back": constant([1, 0], "int64")}, ["y"])
    with open_session(made, device="cpu", values={"x": row(1, 0, 2)}) as session:
        assert session.run().outputs["y"].tolist() == [[0], [2]]


def test_S20_new_shapes_are_bound_without_a_new_session() -> None:
    made = graph([node("a", ["x", "x"], ["y"], op="Add")], X, ["y"], dims={"n": {"default": 2, "max": 8}})
    with EagerSession(made, device="cpu") as session:
        for size in (2, 5, 8, 2):
            x = np.arange(size, dtype=F)
            assert session.run({"x": x}).outputs["y"].tolist() == (2 * x).tolist()
        with pytest.raises(UsageError, match="maximum 8") as caught:
            session.run({"x": np.zeros(9, F)})
        assert caught.value.code == "KG222"


def test_S51_a_dynamic_graph_is_refused_under_strict() -> None:
    made = graph([node("p", ["x"], ["y"], op="NonZero")], X, ["y"])
    with pytest.raises(GraphError, match="node by node") as caught:
        open_session(made, device="cpu", values={"x": row(1)}, strict=True)
    assert caught.value.code == "KG399"


def test_S39_updates_stay_and_runs_that_do_not_count_leave_none() -> None:
    tensors = {"w": tensor("parameter", (3,), F, init={"fill": 0}), "one": constant([1.0])}
    made = graph([node("step", ["w", "one"], ["w2"], op="Add", inplace={"w2": "w"})], tensors, ["w2"])
    with EagerSession(made, device="cpu") as session:
        assert session.run().outputs["w2"].tolist() == [1, 1, 1]
        assert session.run(iterations=4, warmup=3).outputs["w2"].tolist() == [5, 5, 5]


def test_S24_aliases_share_their_bytes() -> None:
    tensors = {"w": tensor("parameter", (3,), F, init={"fill": 2}), "v": tensor("parameter", (3,), F, alias_of="w")}
    with EagerSession(graph([node("a", ["w", "v"], ["y"], op="Mul")], tensors, ["y"]), device="cpu") as session:
        report = session.run()
    assert report.outputs["y"].tolist() == [4, 4, 4]
    assert report.plan.static_bytes == 2 * 512


def test_S24_an_alias_may_be_shorter_and_not_longer() -> None:
    nodes = [node("a", ["w"], ["y"], op="Neg"), node("b", ["v"], ["z"], op="Neg")]
    for extent, wanted in ((2, [-2, -2]), (4, None)):
        v = tensor("parameter", (extent,), F, alias_of="w")
        made = graph(nodes, {"w": tensor("parameter", (3,), F, init={"fill": 2}), "v": v}, ["y", "z"])
        if wanted is None:
            with pytest.raises(GraphError, match="'v' is larger than 'w'"), EagerSession(made, device="cpu") as session:
                session.run()
        else:
            with EagerSession(made, device="cpu") as session:
                assert session.run().outputs["z"].tolist() == wanted


def test_S38_a_pinned_result_outlives_the_run() -> None:
    tensors = X | {"t": {"pin": True}}
    nodes = [node("a", ["x"], ["t"], op="Neg"), node("b", ["t"], ["y"], op="Relu")]
    with EagerSession(graph(nodes, tensors, ["y"]), device="cpu", values={"x": row(1, -2)}) as session:
        session.run()
        assert session.output("t").tolist() == [-1, 2]


def test_S134_a_limit_names_the_tensor_that_does_not_fit() -> None:
    nodes = [node("a", ["x"], ["t"], op="Neg"), node("b", ["t"], ["y"], op="Relu")]
    x = np.zeros(1000, F)
    with (
        EagerSession(graph(nodes, X, ["y"]), device="cpu", values={"x": x}, memory_limit=9000) as session,
        pytest.raises(DoesNotFit, match=r"no room for 'y'\n  needed +4,096 bytes") as caught,
    ):
        session.run()
    assert (caught.value.exit, caught.value.code) == (4, "KG411")
    assert (caught.value.details["needed_bytes"], str(caught.value.where)) == (4096, "nodes[1]")


def test_a_fault_says_its_node() -> None:
    nodes = [node("p", ["x"], ["p"], op="NonZero"), node("add", ["p", "x"], ["y"], op="Add")]
    with (
        open_session(graph(nodes, X, ["y"]), device="cpu", values={"x": row(1, 2)}) as session,
        pytest.raises(KgrunError) as caught,
    ):
        session.run()
    assert (caught.value.exit, str(caught.value.where).split(".")[0]) == (3, "nodes[1]")


def test_checks_need_a_plan() -> None:
    made = graph([node("a", ["x"], ["y"], op="Neg")], X, ["y"], dims={"n": 2})
    with pytest.raises(UsageError, match="--check needs a planned run") as caught:
        open_session(made, device="cpu", memory="single", checks=("nan",))
    assert caught.value.code == "KG240"


def test_an_empty_tensor_runs() -> None:
    nodes = [node("p", ["x"], ["p"], op="NonZero"), node("cast", ["p"], ["y"], op="Cast", attributes={"to": F})]
    with open_session(graph(nodes, X, ["y"]), device="cpu", values={"x": row(0, 0)}) as session:
        assert session.run().outputs["y"].shape == (1, 0)


def test_S20_a_result_beyond_its_max_shape_is_an_error() -> None:
    tensors = X | {"p": {"max_shape": [1, 2]}}
    made = graph([node("places", ["x"], ["p"], op="NonZero")], tensors, ["p"])
    with open_session(made, device="cpu", values={"x": row(1, 0, 2)}) as session:
        assert session.run().outputs["p"].tolist() == [[0, 2]]
        with pytest.raises(GraphError, match=r"shape \[1, 3\], beyond its max_shape \[1, 2\]") as caught:
            session.run({"x": row(1, 2, 3)})
    assert (caught.value.code, str(caught.value.where)) == ("KG352", "tensors.p.max_shape")


def test_S126_S128_what_is_on_the_device_is_kept_and_an_input_is_filled_anew() -> None:
    tensors = X | {"w": tensor("parameter", (3,), F, init={"fill": 2})}
    made = graph([node("a", ["x", "w"], ["y"], op="Mul")], tensors, ["y"], dims={"n": 3})
    with EagerSession(made, device="cpu") as session:
        with pytest.raises(UsageError, match="input 'x' has no data"):
            session.run()
        session.run({"x": row(1, 2, 3)})
        uploaded, place = session.store.uploaded[0], session._body.statics["w"].block.address
        assert session.run({"x": row(4, 5, 6)}).outputs["y"].tolist() == [8, 10, 12]
        assert session.store.uploaded[0] == uploaded + 12  # the input alone
        assert session._body.statics["w"].block.address == place


def test_S129_a_type_that_nothing_declares_is_the_inferred_one() -> None:
    nodes = [node("a", ["x"], ["t"], op="Cast", attributes={"to": "float16"}), node("b", ["t"], ["y"], op="Neg")]
    with EagerSession(graph(nodes, X, ["y"]), device="cpu", values={"x": row(1)}) as session:
        report = session.run()
    assert report.outputs["y"].dtype == np.float16
    assert report.program.graph.tensors["t"].type.dtype == "float16"


def test_S19_S129_a_weight_that_feeds_no_kernel_is_read_from_the_host() -> None:
    tensors = X | {"w": tensor("parameter", (2,), F, init={"fill": 5})}
    made = graph([node("a", ["x"], ["y"], op="Neg")], tensors, ["y", "w"])
    with EagerSession(made, device="cpu", values={"x": row(1)}) as session:
        report = session.run()
        assert report.outputs["w"].tolist() == [5, 5]
        assert session._body.statics["w"].block.address is None


def test_S131_workspace_is_taken_at_each_call_and_returned() -> None:
    nodes = [node("a", ["x"], ["t"], op="Neg", workspace=[4096]), node("b", ["t"], ["y"], op="Neg", workspace=[4096])]
    with EagerSession(graph(nodes, X, ["y"]), device="cpu", values={"x": row(1)}) as session:
        plan = session.run().plan
        assert plan.no_reuse_bytes == 2 * 4096 + 512  # two workspaces and t
        assert plan.dynamic_bytes == 4096 + 512
        assert sorted(holder.name for holder in session.store.pool.leaks()) == ["x", "y"]


def test_S130_S40_an_output_in_place_lies_where_its_input_does() -> None:
    tensors = {"w": tensor("parameter", (3,), F, init={"fill": 1})}
    made = graph([node("a", ["w", "w"], ["w2"], op="Add", inplace={"w2": "w"})], tensors, ["w2"])
    with EagerSession(made, device="cpu") as session:
        session.run()
        assert session._outputs[0].block is session._body.statics["w"].block
        assert session.run().outputs["w2"].tolist() == [4, 4, 4]


def test_a_value_that_others_still_want_is_copied_before_it_is_overwritten() -> None:
    nodes = [
        node("places", ["x"], ["p"], op="NonZero"),
        node("a", ["x"], ["t"], op="Neg"),
        node("view", ["t"], ["v"], op="Identity"),
        node("b", ["t", "x"], ["u"], op="Add", inplace={"u": "t"}),
        node("c", ["v", "u"], ["y"], op="Sub"),
    ]
    with open_session(graph(nodes, X, ["y", "p"]), device="cpu", values={"x": row(1, 2)}) as session:
        assert session.run().outputs["y"].tolist() == [-1, -2]


def test_given_arrays_are_never_changed() -> None:
    x = row(1, -2)
    with EagerSession(graph([node("a", ["x"], ["y"], op="Relu")], X, ["y"]), device="cpu", values={"x": x}) as session:
        out = session.run().outputs["y"]
        out[:] = 7
        assert session.run().outputs["y"].tolist() == [1, 0]
    assert x.tolist() == [1, -2]


def test_contiguous_tensors_are_refused_rather_than_torn_apart() -> None:
    nodes = [
        node("a", ["x"], ["t"], op="Neg"),
        node("b", ["t"], ["u"], op="Neg"),
        node("c", ["t", "u"], ["y"], op="Add"),
    ]
    made = graph(nodes, X, ["y"], contiguous=[["t", "u"]], dims={"n": 4})
    with pytest.raises(GraphError, match="contiguous tensors need a plan") as caught:
        open_session(made, device="cpu", memory="single")
    assert caught.value.code == "KG356"


def test_arguments_of_planned_runs_are_noted_where_they_mean_nothing() -> None:
    made = graph([node("a", ["x"], ["y"], op="Neg")], X, ["y"], dims={"n": 4})
    with EagerSession(made, device="cpu", values={"x": row(1, 2, 3, 4)}) as session:
        report = session.run(cache="cold", timing="cupti")
        assert "W-TIMING" in [warning.code for warning in report.warnings]
        with pytest.raises(TypeError):
            session.run(itertions=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("data", [{"init": {"integers": [0, 2]}}, {"role": "constant", "value": 9}])
def test_data_that_no_host_has_room_for_are_refused_before_they_are_made(data: dict[str, Any]) -> None:
    wide = tensor("input", [3, 2**61], "int64") | data
    with (
        pytest.raises(DoesNotFit) as caught,
        open_session(graph([node("n", ["x"], ["y"], op="NonZero")], {"x": wide}, ["y"]), device="cpu") as session,
    ):
        session.run()
    assert (caught.value.code, str(caught.value.where)) == ("KG402", "tensors.x")


def test_five_thousand_outputs_of_one_node_are_each_their_own() -> None:
    """Each is looked up among the others: lists of them would be gone through 25 million times."""
    count = 5_000
    names = [f"y{i}" for i in range(count)]
    nodes = [node("split", ["x"], names, op="Split", attributes={"num_outputs": count})]
    x = np.arange(2 * count, dtype=np.float32)
    with EagerSession(graph(nodes, {"x": tensor("input", [2 * count], F)}, names), device="cpu") as session:
        found = session.run({"x": x}).outputs
    assert list(found) == names
    assert (np.concatenate(list(found.values())) == x).all()
