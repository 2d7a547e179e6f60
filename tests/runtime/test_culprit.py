"""Faults laid to steps: names, launch and place of the one suspect; sessions that wait after each step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import DeviceFault, DoesNotFit
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.culprit import TellStep, blame, blaming, step_launch, step_title
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.phases import Phases
from kgrun.runtime.session import Session
from tests.runtime.devices.fake_cuda_driver import FakeDriver, FakeError
from tests.support import graph, node, program, tensor

ILLEGAL = "failed: an illegal memory access was encountered"


def made() -> Any:
    return program(
        [node("a", ["x"], ["t"]), node("b", ["t"], ["y"], grid=[2, 3], block=[4])], {"x": tensor("input")}, ["y"]
    )


def test_the_only_suspect_gets_name_launch_and_place() -> None:
    error = DeviceFault("b: an illegal memory access", code="KG601", help="see", details={"suspects": ["b"]})
    blame(error, made())
    assert str(error) == error.message == "kernel 'k' of node 'b' failed: an illegal memory access"
    assert error.help == "step 2 of 2, grid 2×3×1, block 4×1×1; see"
    assert error.where is not None
    assert error.where.path == ("nodes", 1)
    expected = {"kernel": "k", "node": "b", "step": 1, "steps": 2, "grid": [2, 3, 1], "block": [4, 1, 1]}
    assert expected.items() <= error.details.items()


def test_a_refused_launch_did_not_run() -> None:
    error = DeviceFault("launching a: too many resources", details={"suspects": ["a"]})
    blame(error, made())
    assert error.message == "kernel 'k' of node 'a' cannot be launched: too many resources"


@pytest.mark.parametrize("suspects", [[], ["a", "b"], ["stranger"], None])
def test_what_is_not_certain_stays_as_it_is(suspects: Any) -> None:
    error = DeviceFault("found while waiting", details={"suspects": suspects})
    with pytest.raises(DeviceFault), blaming(made):
        raise error
    assert (error.message, error.where, error.details) == ("found while waiting", None, {"suspects": suspects})


def test_an_operator_is_called_one_and_says_which_of_its_steps() -> None:
    found = program([node("m", ["x"], ["y"], op="Relu")], {"x": tensor("input", (4,), "float32")}, ["y"])
    step = dataclasses.replace(found.steps[0], name="m.1")
    assert step_title(found, found.steps[0]) == "operator 'Relu' of node 'm'"
    assert step_title(found, step) == "operator 'Relu' of node 'm' (m.1)"
    assert step_launch(found, step).startswith("step 1 of 1")


def test_steps_are_told_before_they_run_and_the_end_after() -> None:
    told: list[Mapping[str, object]] = []
    found = made()
    teller = TellStep(found, told.append)
    teller.before(found.steps[1])
    teller.finish()
    assert [each["doing"] for each in told] == ["kernel 'k' of node 'b' was running", "running the whole graph"]
    assert told[0]["launch"] == "step 2 of 2, grid 2×3×1, block 4×1×1"


def test_phases_are_told_and_a_phase_inside_another_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter((100, 130, 170, 180))  # run begins, the first run begins and ends, run ends
    monkeypatch.setattr("kgrun.runtime.phases.time.perf_counter_ns", lambda: next(ticks))
    told: list[Mapping[str, object]] = []
    phases = Phases(told.append)
    with phases("run"), phases.within("run", "first run"):
        pass
    assert told == [{"doing": "running the graph"}]
    assert phases.spent == {"first run": 40, "run": 40}


@pytest.fixture
def driver() -> FakeDriver:
    pytest.importorskip("cuda.bindings")
    return FakeDriver()


def chain() -> KernelGraph:
    """x -> a -> t -> b -> y, each a copy of one byte."""
    source = 'extern "C" __global__ void k(const unsigned char* x, unsigned char* y) { *y = *x; }'
    return graph(
        [node("a", ["x"], ["t"]), node("b", ["t"], ["y"])],
        {"x": tensor("input")}, ["y"], kernels={"k": {"source": source, "entry": "k"}},
    )  # fmt: skip


def open_session(driver: FakeDriver, **options: Any) -> Session:
    return Session(chain(), device=CudaDevice(driver=driver), graph_replay=False, **options)


def test_S139_a_session_that_waits_after_each_step_raises_the_fault_of_one_step(driver: FakeDriver) -> None:
    session = open_session(driver, sync_each=True)
    seen = 0

    def second_fails(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            driver.fail("synchronize", ILLEGAL)

    driver.on_launch = second_fails
    with pytest.raises(DeviceFault) as caught:
        session.run({"x": np.zeros(256, np.uint8)}, iterations=1, warmup=1)
    assert (caught.value.details["node"], caught.value.details["suspects"]) == ("b", ["b"])
    session.close()


def test_without_it_the_suspects_are_all_that_ran(driver: FakeDriver) -> None:
    session = open_session(driver)
    driver.fail("elapsed", ILLEGAL)
    with pytest.raises(DeviceFault) as caught:
        session.run({"x": np.zeros(256, np.uint8)}, iterations=1, warmup=0, per_step=False)
    assert caught.value.details["suspects"] == ["a", "b"]
    assert "node" not in caught.value.details


def test_out_of_memory_is_told_with_the_plan(driver: FakeDriver) -> None:
    driver.other_bytes = (1 << 20) - 1_000
    with pytest.raises(DoesNotFit) as caught:
        open_session(driver)
    error = caught.value
    assert error.message.splitlines()[0] == "out of memory on GPU 0 (Fake H200)"
    assert error.message.splitlines()[1].split()[:3] == ["planned", "1,536", "bytes"]
    assert error.details["free_bytes"] == 1_000


def test_what_went_on_is_told_step_by_step_in_a_first_run(driver: FakeDriver) -> None:
    told: list[Mapping[str, object]] = []
    session = open_session(driver, tell=told.append)
    driver.on_launch = lambda *_: told.append({"doing": "launch"})
    session.run({"x": np.zeros(256, np.uint8)}, iterations=1, warmup=0, per_step=False)
    session.close()
    words = [str(each["doing"]) for each in told]
    start = words.index("kernel 'k' of node 'a' was running")
    assert words[start : start + 5] == [
        "kernel 'k' of node 'a' was running", "launch", "kernel 'k' of node 'b' was running", "launch",
        "running the whole graph",
    ]  # fmt: skip
    assert "opening the device" in words[:start]


def test_a_fault_that_shows_while_the_next_kernel_loads_is_laid_to_what_ran(driver: FakeDriver) -> None:
    device = CudaDevice(driver=driver)
    steps = made().steps
    device.issued.append("earlier")
    driver.fail("load", "cuModuleLoadDataEx " + ILLEGAL)
    source = 'extern "C" __global__ void k() {}'
    code = dataclasses.replace(steps[0].work.code, text=source)
    step = dataclasses.replace(steps[0], work=dataclasses.replace(steps[0].work, code=code, args=()))
    with pytest.raises(DeviceFault, match=r"^earlier: an illegal memory access") as caught:
        device.prepare(step, lambda _: 0)
    assert (caught.value.code, caught.value.details["suspects"]) == ("KG601", ["earlier"])
    with pytest.raises(DeviceFault, match="lost after a fault"):
        device.allocate(1)
    device.close()
    assert driver.closed is True


def test_a_step_that_is_refused_while_captured_is_named(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(issue: Any, after: Any) -> Any:
        for call in issue:
            call()

    def refuse(*_: Any) -> None:
        raise FakeError("cuLaunchKernel failed: invalid argument")

    monkeypatch.setattr(driver, "capture", capture, raising=False)
    driver.on_launch = refuse
    with pytest.raises(DeviceFault, match="kernel 'k' of node 'a' cannot be launched: invalid argument"):
        Session(chain(), device=CudaDevice(driver=driver))
