"""State under offload: updated parameters, inputs, outputs and what the file marks, over several runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import DoesNotFit
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.memory.offload.records import Offload
from kgrun.runtime.program import Transfer
from tests.support import graph, node, tensor

F = "float32"
N = 1024  # elements: 4 KiB a tensor


def training(layers: int = 4, **more: Any) -> KernelGraph:
    """Forward h = h · w, backward in reverse: w takes part again and is updated in place by what it is read with."""
    tensors: dict[str, Any] = {"x": tensor("input", (N,), F, init={"uniform": [0.5, 1.5], "seed": 1})}
    nodes = []
    for i in range(layers):
        tensors[f"w{i}"] = tensor("parameter", (N,), F, init={"uniform": [0.5, 1.5], "seed": 10 + i}) | more
        nodes.append(node(f"f{i}", [f"h{i - 1}" if i else "x", f"w{i}"], [f"h{i}"], op="Mul"))
    nodes.append(node("loss", [f"h{layers - 1}"], [f"g{layers - 1}"], op="Sigmoid"))
    for i in reversed(range(layers)):
        if i:
            nodes.append(node(f"b{i}", [f"g{i}", f"h{i - 1}"], [f"g{i - 1}"], op="Mul"))
        nodes.append(node(f"u{i}", [f"w{i}", f"g{i}"], [f"v{i}"], op="Sub", inplace={f"v{i}": f"w{i}"}))
    return graph(nodes, tensors, [f"v{i}" for i in range(layers)])


def results(made: KernelGraph, **options: Any) -> tuple[dict[str, bytes], Offload | None]:
    """Outputs after runs of 1, 3 and 2 iterations, warm-up and poison in between."""
    with Session(made, device="cpu", **options) as session:
        session.run(iterations=1, poison=True)
        session.run(iterations=3, warmup=2)
        report = session.run(iterations=2)
        limit = options.get("memory_limit")
        assert limit is None or session.device.peak_memory() <= limit
        return {name: array.tobytes() for name, array in report.outputs.items()}, report.program.offload


def floor_of(made: KernelGraph) -> int:
    with pytest.raises(DoesNotFit) as caught:
        Session(made, device="cpu", memory_limit=1)
    found = caught.value.details["smallest_feasible_limit_bytes"]
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("mode", ["auto", "seeds"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_S94_S98_S106_updated_parameters_are_right_over_several_runs(mode: str, share: float) -> None:
    made = training()
    free, _ = results(made)
    with Session(made, device="cpu") as session:
        peak = session.plan.peak_bytes
    least = floor_of(made)
    found, offload = results(made, memory_limit=int(least + share * (peak - least)), offload=mode)
    assert found == free
    assert offload is not None


def test_S94_S106_a_parameter_that_starts_on_the_device_ends_there() -> None:
    """Gaps are circular: what leaves in the middle of a run may stay over its end, in the same bytes."""
    made = training(6)
    least = floor_of(made)
    wrapped = 0
    for extra in range(16):
        with Session(made, device="cpu", memory_limit=least + extra * 4096) as session:
            offload = session.program.offload
            for home in offload.homes if offload is not None else ():
                if home.persistent and home.first is not None:
                    assert home.first == home.last
                    assert len(session.program.buffers[home.first].lives) == 2
                    wrapped += 1
    assert wrapped


def test_S102_off_02_a_weight_that_nobody_writes_is_dropped_and_brought_back_without_a_copy_out() -> None:
    tensors = {"x": tensor("input", (N,), F, init={"fill": 2}), "c": tensor("parameter", (N,), F, init={"fill": 3})}
    steps = [node("a", ["x", "c"], ["t0"], op="Mul")]
    steps += [node(f"n{i}", [f"t{i}"], [f"t{i + 1}"], op="Sigmoid", workspace=[3 * 4 * N]) for i in range(6)]
    steps += [node("z", ["t6", "c"], ["y"], op="Mul")]
    made = graph(steps, tensors, ["y"])
    free, _ = results(made)
    found, offload = results(made, memory_limit=floor_of(made))
    assert found == free
    assert offload is not None
    moved = [(row.tensor, row.direction) for row in offload.transfers]
    assert ("c", "in") in moved
    assert ("c", "out") not in moved
    assert offload.dropped_bytes > 0


def test_S96_marked_tensors_alone_move_and_they_move_though_memory_suffices() -> None:
    tensors = {"x": tensor("input", (N,), F, init={"uniform": [-1, 1], "seed": 3})}
    steps = [node("a", ["x"], ["t0"], op="Neg", offload=True)]
    steps += [node(f"n{i}", [f"t{i}"], [f"t{i + 1}"], op="Sigmoid") for i in range(4)]
    steps += [node("z", ["t4", "t0"], ["y"], op="Mul")]
    made = graph(steps, tensors, ["y"])
    free, none = results(made, offload="off")
    assert none is None
    for mode in ("manual", "auto", "seeds"):
        found, offload = results(made, offload=mode)
        assert found == free
        assert offload is not None
        assert {row.tensor for row in offload.transfers} == {"t0"}
        assert [row.direction for row in offload.transfers] == ["out", "in"]


def test_S96_manual_moves_nothing_that_is_not_marked() -> None:
    made = training()
    with pytest.raises(DoesNotFit, match="marks for offload") as caught:
        Session(made, device="cpu", memory_limit=floor_of(made), offload="manual")
    assert caught.value.code == "KG405"


def test_parameters_live_on_the_host_where_the_file_says_so() -> None:
    free, none = results(training())
    assert none is None
    found, offload = results(training(location="host"))
    assert found == free
    assert offload is not None
    homes = {home.name: home for home in offload.homes}
    assert set(homes) == {f"w{i}" for i in range(4)}
    assert all(home.first is None and home.last is None for home in homes.values())


def test_offload_off_says_that_marks_are_not_followed() -> None:
    with Session(training(location="host"), device="cpu", offload="off") as session:
        report = session.run()
    assert "W-NO-OFFLOAD" in [w.code for w in report.program.warnings]
    assert report.program.offload is None


def test_never_keeps_a_tensor_on_the_device() -> None:
    made = training(offload="never")
    _, offload = results(made, memory_limit=floor_of(made))
    assert offload is not None
    assert not {home.name for home in offload.homes} & {f"w{i}" for i in range(4)}


def test_S105_an_output_that_left_is_read_on_the_host() -> None:
    tensors = {"x": tensor("input", (N,), F, init={"uniform": [-1, 1], "seed": 3})}
    steps = [node("a", ["x"], ["early"], op="Neg")]
    steps += [node(f"n{i}", ["x" if i == 0 else f"t{i - 1}"], [f"t{i}"], op="Sigmoid") for i in range(5)]
    steps += [node("z", ["t4", "t4", "t3"], ["y"], op="Concat", attributes={"axis": 0})]
    made = graph(steps, tensors, ["early", "y"])
    free, _ = results(made)
    found, offload = results(made, memory_limit=floor_of(made))
    assert found == free
    assert offload is not None
    home = offload.home_of("early")
    assert home is not None
    assert home.last is None
    out = [row for row in offload.transfers if row.tensor == "early"]
    assert [row.direction for row in out] == ["out"]


def test_S93_new_inputs_reach_the_host_copy_and_the_device() -> None:
    tensors = {"x": tensor("input", (N,), F)}
    steps = [node("a", ["x"], ["t0"], op="Neg")]
    steps += [node(f"n{i}", [f"t{i}"], [f"t{i + 1}"], op="Sigmoid", workspace=[3 * 4 * N]) for i in range(4)]
    steps += [node("z", ["t4", "x"], ["y"], op="Mul")]
    made = graph(steps, tensors, ["y"])
    values = [np.linspace(a, a + 1, N, dtype=F) for a in (0, 5)]

    def outputs(**options: Any) -> list[bytes]:
        with Session(made, device="cpu", **options) as session:
            assert options == {} or session.program.offload is not None
            return [session.run({"x": value}).outputs["y"].tobytes() for value in (*values, values[0])]

    assert outputs(memory_limit=floor_of(made)) == outputs()


def test_U7_what_comes_back_keeps_its_type_and_views() -> None:
    """Bytes move, types do not: a view and an in-place result of another shape move with their class."""
    tensors = {"x": tensor("input", (32, 32), "float16", init={"uniform": [-1, 1], "seed": 3})}
    tensors |= {"s": {"role": "constant", "dtype": "int64", "value": [1024]}}
    steps = [node("a", ["x"], ["m"], op="Neg"), node("v", ["m", "s"], ["flat"], op="Reshape")]
    steps += [node(f"n{i}", ["x" if i == 0 else f"t{i - 1}"], [f"t{i}"], op="Sigmoid") for i in range(5)]
    steps += [node("w", ["t4", "s"], ["tf"], op="Reshape"), node("z", ["flat", "tf"], ["y"], op="Mul")]
    made = graph(steps, tensors, ["y", "m"])
    free, _ = results(made)
    found, offload = results(made, memory_limit=floor_of(made))
    assert found == free
    assert offload is not None


def test_B21_a_graph_without_kernels_is_no_error() -> None:
    made = graph([], {"w": tensor("parameter", (4,), F, init={"fill": 1}, location="host")}, ["w"])
    with Session(made, device="cpu", memory_limit=1 << 20, allow_empty=True) as session:
        assert session.run().outputs["w"].tolist() == [1, 1, 1, 1]


def test_B15_views_that_run_nothing_do_not_shift_the_schedule() -> None:
    """Steps are counted as they run: a reshape has none, and transfers stand around the step they are for."""
    made = training(location="host")
    with Session(made, device="cpu") as session:
        program = session.program
    arrivals = [step for step in program.steps if isinstance(step.work, Transfer) and step.work.direction == "in"]
    assert arrivals
    for step in arrivals:
        touched = [s.index for s in program.steps if step.writes[0] in (*s.reads, *s.writes) and s is not step]
        assert min(touched) > step.index
