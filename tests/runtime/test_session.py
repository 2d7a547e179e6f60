"""Sessions: data in, updates across runs, faults, and what stays allocated."""

from __future__ import annotations

import numpy as np
import pytest

from kgrun.graphs.errors import DeviceFault, DoesNotFit, GraphError, KgrunError, UsageError
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.devices.cpu import CpuDevice
from kgrun.runtime.program import Step
from tests.support import graph, node, tensor

F = "float32"
X = {"x": tensor("input", ["n"], F)}


def add_one() -> dict[str, object]:
    return {"role": "constant", "dtype": F, "value": [1.0]}


def counter() -> Session:
    tensors = {"w": tensor("parameter", (3,), F, init={"fill": 0}), "one": add_one()}
    nodes = [node("step", ["w", "one"], ["w2"], op="Add", inplace={"w2": "w"})]
    return Session(graph(nodes, tensors, ["w2"]), device="cpu")


def test_S39_updates_stay_in_the_parameter_from_run_to_run() -> None:
    with counter() as session:
        assert session.run().outputs["w2"].tolist() == [1, 1, 1]
        assert session.run(iterations=4).outputs["w2"].tolist() == [5, 5, 5]


def test_runs_that_do_not_count_leave_no_update() -> None:
    with counter() as session:
        assert session.run(iterations=2, warmup=7).outputs["w2"].tolist() == [2, 2, 2]
        assert session.run(duration=0.0, warmup=3).outputs["w2"].tolist() == [3, 3, 3]


def test_dimensions_come_from_given_arrays() -> None:
    made = graph([node("a", ["x"], ["y"], op="Neg")], X, ["y"])
    with Session(made, device="cpu", values={"x": np.arange(5, dtype=F)}) as session:
        assert session.run().outputs["y"].tolist() == [0, -1, -2, -3, -4]


def test_S17_inputs_keep_their_last_value() -> None:
    made = graph([node("a", ["x"], ["y"], op="Neg")], X, ["y"], dims={"n": 2})
    with Session(made, device="cpu") as session:
        with pytest.raises(UsageError, match="input 'x' has no data") as caught:
            session.run()
        assert caught.value.exit == 2
        session.run({"x": np.array([1, 2], F)})
        assert session.run().outputs["y"].tolist() == [-1, -2]


def test_the_callers_array_is_never_changed() -> None:
    tensors = {"x": tensor("input", (4,), F)}
    made = graph([node("a", ["x"], ["t"], op="Relu"), node("b", ["t"], ["y"], op="Neg")], tensors, ["y"])
    given = np.array([1, -2, 3, -4], F)
    with Session(made, device="cpu") as session:
        session.run({"x": given})
    assert given.tolist() == [1, -2, 3, -4]


@pytest.mark.parametrize(
    ("array", "code"), [(np.zeros(3, "float64"), "KG375"), (np.zeros(4, F), "KG376"), (np.zeros((3, 1), F), "KG376")]
)
def test_an_array_that_does_not_fit_is_refused(array: np.ndarray, code: str) -> None:  # type: ignore[type-arg]
    made = graph([node("a", ["x"], ["y"], op="Neg")], X, ["y"], dims={"n": 3})
    with Session(made, device="cpu") as session, pytest.raises(GraphError) as caught:
        session.run({"x": array})
    assert caught.value.code == code


def test_an_unknown_input_gets_a_suggestion() -> None:
    made = graph([node("a", ["x"], ["y"], op="Neg")], X, ["y"], dims={"n": 3})
    with Session(made, device="cpu") as session, pytest.raises(UsageError, match="no input 'xx'"):
        session.run({"xx": np.zeros(3, F)})


def test_S19_a_lonely_weight_is_read_from_the_host() -> None:
    tensors = {**X, "w": {"role": "parameter", "dtype": F, "shape": [2], "init": {"fill": 7}}}
    made = graph([node("a", ["x"], ["y"], op="Neg")], tensors, ["y", "w"], dims={"n": 1})
    with Session(made, device="cpu") as session:
        assert session.run({"x": np.zeros(1, F)}).outputs["w"].tolist() == [7, 7]


def test_S31_a_string_constant_is_its_bytes() -> None:
    tensors = {"s": {"role": "constant", "string": "hé"}, "zero": {"role": "constant", "dtype": "uint8", "value": [0]}}
    made = graph([node("a", ["s", "zero"], ["y"], op="Add")], tensors, ["y"])
    with Session(made, device="cpu") as session:
        assert session.run().outputs["y"].tobytes().decode() == "hé"


def test_S38_a_pinned_tensor_is_there_after_the_run_though_its_bytes_were_reused() -> None:
    tensors = {"x": tensor("input", (64,), F), "t": tensor(None, (64,), F, pin=True)}
    nodes = [
        node("a", ["x"], ["t"], op="Abs"),
        *(node(f"n{i}", ["t" if i == 0 else f"u{i - 1}"], [f"u{i}"], op="Neg") for i in range(5)),
    ]
    with Session(graph(nodes, tensors, ["u4"]), device="cpu") as session:
        given = np.linspace(-3, 3, 64, dtype=F)
        session.run({"x": given})
        assert np.array_equal(session.output("t"), np.abs(given))


def test_S54_S81_cleared_outputs_start_at_zero_every_time() -> None:
    pytest.importorskip("llvmlite")
    source = 'extern "C" __global__ void k(float* y) { atomicAdd(&y[threadIdx.x % 4], 1.0f); }'
    made = graph(
        [{"name": "count", "kernel": "k", "outputs": ["y"], "clear": ["y"], "grid": [2], "block": [32]}],
        {"y": tensor(None, (4,), F)},
        ["y"],
        kernels={"k": {"source": source, "entry": "k"}},
    )
    with Session(made, device="cpu") as session:
        assert session.run(iterations=3, poison=True).outputs["y"].tolist() == [16, 16, 16, 16]


def test_unwritten_outputs_are_poisoned_not_stale() -> None:
    pytest.importorskip("llvmlite")
    source = 'extern "C" __global__ void k(float* y) { if (threadIdx.x < 2) y[threadIdx.x] = 1.0f; }'
    made = graph(
        [{"name": "half", "kernel": "k", "outputs": ["y"], "grid": [1], "block": [32]}],
        {"y": tensor(None, (4,), F)},
        ["y"],
        kernels={"k": {"source": source, "entry": "k"}},
    )
    with Session(made, device="cpu") as session:
        assert np.isnan(session.run().outputs["y"]).tolist() == [False, False, True, True]


def test_shapes_that_an_input_decides_are_read_before_the_run() -> None:
    tensors = {"x": tensor("input", (6,), F), "shape": tensor("input", (2,), "int64")}
    made = graph([node("r", ["x", "shape"], ["v"], op="Reshape"), node("a", ["v"], ["y"], op="Neg")], tensors, ["y"])
    values = {"shape": np.array([2, -1]), "x": np.arange(6, dtype=F)}
    with Session(made, device="cpu", values=values) as session:
        assert session.run().outputs["y"].shape == (2, 3)
        with pytest.raises(KgrunError, match="decides shapes"):
            session.run({"shape": np.array([3, 2])})


def test_a_failed_session_leaves_nothing_allocated() -> None:
    device = CpuDevice()
    tensors = {"x": tensor("input", (4,), F), "w": tensor("parameter", (4,), F, data="missing.npy")}
    with pytest.raises(GraphError, match=r"missing\.npy"):
        Session(graph([node("a", ["x", "w"], ["y"], op="Add")], tensors, ["y"]), device=device)
    assert device.memory_in_use() == 0


def test_closing_twice_frees_once() -> None:
    device = CpuDevice()
    session = Session(graph([node("a", ["x"], ["y"], op="Neg")], X, ["y"], dims={"n": 3}), device=device)
    assert device.memory_in_use() == session.plan.peak_bytes > 0
    session.close()
    session.close()
    assert device.memory_in_use() == 0


def test_U4_repeated_sessions_leave_nothing_allocated() -> None:
    device = CpuDevice()
    for _ in range(20):
        with Session(graph([node("a", ["x"], ["y"], op="Neg")], X, ["y"], dims={"n": 3}), device=device) as session:
            session.run({"x": np.zeros(3, F)})
    assert device.memory_in_use() == 0


def test_known_results_are_loaded_once_and_never_overwritten() -> None:
    tensors = {"x": tensor("input", (2, 3), "int64"), "zero": {"role": "constant", "value": [0, 0]}}
    nodes = [
        node("s", ["x"], ["shape"], op="Shape"),
        node("t", ["x", "axes"], ["sums"], op="ReduceSum", attributes={"keepdims": 0}),
        node("a", ["shape", "late"], ["y"], op="Add"),
        node("l", ["sums", "zero"], ["late"], op="Add"),
    ]
    tensors["axes"] = {"role": "constant", "value": [1]}
    made = graph(nodes, tensors, ["y", "shape"])
    with Session(made, device="cpu") as session:
        given = {"x": np.arange(6, dtype="int64").reshape(2, 3)}
        for _ in range(2):
            outputs = session.run(given, iterations=2).outputs
            assert outputs["shape"].tolist() == [2, 3]
            assert outputs["y"].tolist() == [5, 15]


class CountingDevice(CpuDevice):
    """Counts what is asked of it; refuses the allocation after `good` ones."""

    def __init__(self, good: int = 1_000) -> None:
        super().__init__()
        self.good, self.allocations, self.uploads = good, 0, 0

    def allocate(self, nbytes: int) -> int:
        self.allocations += 1
        if self.allocations > self.good:
            raise DoesNotFit(f"no room for {nbytes} bytes")
        return super().allocate(nbytes)

    def upload(self, address: int, array: np.ndarray) -> None:  # type: ignore[type-arg]
        self.uploads += 1
        super().upload(address, array)


def constants() -> KernelGraph:
    tensors = {**X, "c": {"role": "constant", "dtype": F, "value": [1.0]}, "s": {"role": "constant", "string": "text"}}
    nodes = [
        node("a", ["x", "c"], ["t"], op="Add"),
        node("b", ["t"], ["y"], op="Neg"),
        node("d", ["s"], ["z"], op="Cast", attributes={"to": 1}),
    ]
    return graph(nodes, tensors, ["y", "z"], dims={"n": 3})


def test_S27_S30_B1_B2_constants_share_one_allocation_and_are_loaded_once() -> None:
    device = CountingDevice()
    with Session(constants(), device=device) as session:
        assert device.allocations == (session.plan.static_bytes > 0) + (session.plan.dynamic_bytes > 0)
        loaded = device.uploads
        session.run({"x": np.zeros(3, F)})
        session.run({"x": np.ones(3, F)})
        assert device.uploads == loaded + 2


def test_B1_only_a_failed_allocation_raises_and_nothing_is_left() -> None:
    device = CountingDevice(good=0)
    with pytest.raises(DoesNotFit, match="no room"):
        Session(constants(), device=device)
    assert device.memory_in_use() == 0


def test_S11_nothing_is_allocated_before_the_plan_is_made() -> None:
    device = CountingDevice()
    with pytest.raises(DoesNotFit, match="static memory alone"):
        Session(constants(), device=device, memory_limit=512, offload="off")
    with pytest.raises(DoesNotFit, match="needs 2,048 bytes at once"):
        Session(constants(), device=device, memory_limit=512)
    assert device.allocations == 0


def test_S75_S76_steps_run_in_order_with_the_observers_around_each_and_one_wait_at_the_end() -> None:
    seen: list[str] = []

    class Watch:
        def before(self, step: Step) -> None:
            seen.append(f"before {step.name}")

        def after(self, step: Step) -> None:
            seen.append(f"after {step.name}")

        def finish(self) -> None:
            seen.append("finish")

    nodes = [
        node("a", ["x"], ["t"], op="Abs"),
        node("r", ["t"], ["v"], op="Flatten"),
        node("b", ["v"], ["y"], op="Neg"),
    ]
    with Session(graph(nodes, {"x": tensor("input", (2, 2), F)}, ["y"]), device="cpu") as session:
        session.run({"x": np.zeros((2, 2), F)}, observers=[Watch()])
    assert seen == ["before a", "after a", "before b", "after b", "finish"]


def test_S139_a_wait_after_each_step_names_the_kernel_that_failed() -> None:
    class Failing(CpuDevice):
        def synchronize(self) -> None:
            raise DeviceFault("an illegal memory access was encountered")

    from kgrun.runtime.execute import SyncEach

    device = Failing()
    nodes = [node("first", ["x"], ["t"], op="Abs"), node("second", ["t"], ["y"], op="Neg")]
    session = Session(graph(nodes, X, ["y"], dims={"n": 2}), device=device)
    with pytest.raises(DeviceFault, match=r"operator 'Abs' of node 'first' failed: an illegal memory access"):
        session.run({"x": np.zeros(2, F)}, observers=[SyncEach(device)])


def test_S140_S142_every_step_and_the_whole_run_are_timed_with_their_method() -> None:
    with Session(constants(), device="cpu") as session:
        report = session.run({"x": np.zeros(3, F)}, iterations=5)
    assert report.total is not None
    assert report.total.count == 5
    assert [(s.name, s.method, len(s.samples)) for s in report.steps] == [(n, "host clock", 5) for n in ("a", "b")]
    assert sum(s.times.min for s in report.steps if s.times) <= report.total.max


@pytest.mark.parametrize("shape", [(2,), (4,), (3, 1)])
def test_S74_B26_a_host_array_of_another_size_is_an_error_and_nothing_is_copied(shape: tuple[int, ...]) -> None:
    device = CountingDevice()
    with Session(graph([node("a", ["x"], ["y"], op="Neg")], X, ["y"], dims={"n": 3}), device=device) as session:
        before = device.uploads
        with pytest.raises(GraphError):
            session.run({"x": np.zeros(shape, F)})
        assert device.uploads == before
        assert session.run({"x": np.ones(3, F)}).outputs["y"].tolist() == [-1, -1, -1]


def test_an_index_out_of_range_is_invalid_input_and_names_the_node() -> None:
    tensors = {
        "x": {"role": "input", "dtype": "float32", "shape": [2], "init": {"fill": 1}},
        "i": {"role": "input", "dtype": "int64", "shape": [1], "init": {"fill": 7}},
    }
    made = graph([node("pick", ["x", "i"], ["y"], op="Gather")], tensors, ["y"])
    with Session(made, device="cpu") as session, pytest.raises(GraphError, match=r"pick.*index 7") as caught:
        session.run()
    assert (caught.value.code, caught.value.exit) == ("KG333", 3)


@pytest.mark.parametrize("limit", [None, 6 * 512])
def test_an_array_for_a_parameter_is_what_the_run_reads(limit: int | None) -> None:
    """Also where the parameter waits on the host between its uses."""
    nodes = [node("a", ["x", "w"], ["t"], op="Mul"), node("b", ["t", "v"], ["u"], op="Mul")]
    nodes += [node("c", ["u", "w"], ["y"], op="Mul")]
    tensors = {"x": tensor("input", (256,), F, init={"fill": 1})}
    tensors |= {name: tensor("parameter", (256,), F, init={"fill": fill}) for name, fill in (("w", 2), ("v", 3))}
    with Session(graph(nodes, tensors, ["y"]), device="cpu", memory_limit=limit) as session:
        assert (session.program.offload is None) == (limit is None)
        assert set(session.run().outputs["y"].tolist()) == {12.0}
        w, v = np.full(256, 5, F), np.full(256, 7, F)
        assert set(session.run({"w": w}).outputs["y"].tolist()) == {75.0}
        assert set(session.run({"v": v}).outputs["y"].tolist()) == {175.0}
        assert session.output("w").tolist() == w.tolist()


def test_an_array_for_an_updated_parameter_is_where_updates_go_on_from() -> None:
    with counter() as session:
        session.run(iterations=4)
        assert session.run({"w": np.full(3, 10, F)}, iterations=2, warmup=3).outputs["w2"].tolist() == [12, 12, 12]
        assert session.run().outputs["w2"].tolist() == [13, 13, 13]


@pytest.mark.parametrize(("update_async", "left"), [(False, 2.0), (True, 5.0)])
def test_S22_updates_of_nodes_that_do_not_count_are_not_put_back(update_async: bool, left: float) -> None:
    tensors = {"w": tensor("parameter", (3,), F, init={"fill": 0}), "one": tensor("input", (3,), F, init={"fill": 1})}
    step = node("step", ["w", "one"], ["w2"], op="Add", inplace={"w2": "w"}, update_async=update_async)
    with Session(graph([step], tensors, ["w2"]), device="cpu") as session:
        assert [buffer.name for buffer in session.loaded.updated] == ([] if update_async else ["w"])
        assert set(session.run(iterations=2, warmup=3).outputs["w2"].tolist()) == {left}


@pytest.mark.parametrize("given", [[1.0, 2.0], None])
def test_what_is_no_array_is_refused(given: object) -> None:
    made = graph([node("a", ["x"], ["y"], op="Neg")], X, ["y"], dims={"n": 2})
    with Session(made, device="cpu") as session, pytest.raises(UsageError, match="no array") as caught:
        session.run({"x": given})  # type: ignore[dict-item]
    assert caught.value.code == "KG200"
