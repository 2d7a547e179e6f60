"""Whole sessions on a fake GPU: how they start runs, what they time by what, and when the cache is emptied."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kgrun.runtime.devices import cuda_measure
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.measure import Amount, Runner
from kgrun.runtime.queues.base import Feed
from kgrun.runtime.report import GpuState
from kgrun.runtime.session import Session
from tests.runtime.devices.fake_cuda_driver import FACTS, FakeDriver
from tests.support import graph, node, tensor

pytest.importorskip("cuda.bindings")

SOURCE = 'extern "C" __global__ void k(const unsigned char* x, unsigned char* y) { y[threadIdx.x] = x[threadIdx.x]; }'


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    monkeypatch.setattr(cuda_measure, "_LEAST_CACHE", 4096)
    return FakeDriver(replace(FACTS, total_memory=1 << 24))


@pytest.fixture
def device(driver: FakeDriver) -> Iterator[CudaDevice]:
    opened = CudaDevice(driver=driver)
    yield opened
    opened.close()


def session(device: CudaDevice, **options: Any) -> Session:
    made = graph(
        [node("a", ["x"], ["t"]), node("b", ["t"], ["y"])],
        {"x": tensor("input", init={"fill": 1})},
        ["y"],
        kernels={"k": {"source": SOURCE, "entry": "k"}},
    )
    return Session(made, device=device, **options)


def test_a_planned_run_is_one_graph_and_every_figure_is_there(device: CudaDevice) -> None:
    with session(device) as opened:
        report = opened.run(iterations=12)
    assert report.not_replayed is None
    assert [step.method for step in report.steps] == ["graph of repeats"] * 2
    assert set(report.floors_ns) == {"graph of repeats"}
    assert report.issue_ns is not None
    assert report.issue_ns > 0
    assert report.balance is not None
    assert report.balance.total_ns == report.total.median  # type: ignore[union-attr]
    assert report.cache == "hot"
    assert len(report.total_samples) == 12
    assert [index for index, _, _ in report.timeline] == [0, 1]


@pytest.mark.parametrize(("streams", "its_own"), [(("compute", "compute"), True), (("compute", "other"), False)])
def test_the_start_is_measured_on_the_run_itself_where_its_steps_follow_each_other(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, streams: tuple[str, str], its_own: bool
) -> None:
    given: list[Any] = []
    timed = device.time_steps
    monkeypatch.setattr(device, "time_steps", lambda p, r, timing: given.append(timing.whole) or timed(p, r, timing))
    made = graph(
        [node("a", ["x"], ["y"], stream=streams[0]), node("b", ["x"], ["z"], stream=streams[1])],
        {"x": tensor("input", init={"fill": 1})},
        ["y", "z"],
        kernels={"k": {"source": SOURCE, "entry": "k"}},
    )
    with Session(made, device=device) as opened:
        opened.run(iterations=2)
        assert [whole is not None for whole in given] == [its_own]
        launched = len(device.driver.launches)  # type: ignore[attr-defined]
        if its_own:
            given[0].launch()
            assert len(device.driver.launches) > launched  # type: ignore[attr-defined]
    with Session(made, device=device, graph_replay=False) as opened:
        opened.run(iterations=2)
    assert given[1:] == [None]


def test_without_a_graph_runs_are_loops_of_bare_launches(device: CudaDevice, driver: FakeDriver) -> None:
    with session(device, graph_replay=False) as opened:
        opened.run(iterations=2, warmup=0, per_step=False)
        driver.calls.clear()
        opened.runner.issue()
        assert driver.calls == ["launch", "launch"]
        assert opened.not_replayed == "switched off"


def test_events_time_steps_where_they_are_asked_for(device: CudaDevice) -> None:
    with session(device) as opened:
        report = opened.run(iterations=5, timing="events")
    assert [step.method for step in report.steps] == ["stream events"] * 2
    assert [step.times.count for step in report.steps if step.times] == [5, 5]
    assert report.floors_ns == {"stream events": 1_000}
    assert all(step.overhead_bound for step in report.steps)


def test_a_cold_run_empties_the_cache_right_before_each(device: CudaDevice, driver: FakeDriver) -> None:
    with session(device) as opened:
        opened.run(iterations=1, warmup=0, per_step=False)
        driver.calls.clear()
        report = opened.run(iterations=3, warmup=1, per_step=False, cache="cold")
    assert report.cache == "cold"
    one_run = ["record", "launch", "launch", "record", "elapsed"]
    runs = [call for call in driver.calls if call in {"fill", *one_run}]
    assert runs == ["fill", *one_run, *(["fill", *one_run] * 3)]


def test_the_cpu_says_that_its_cache_is_not_emptied() -> None:
    made = graph([node("a", ["x"], ["y"], op="Relu")], {"x": tensor("input", (4,), "float32", init={"fill": 1})}, ["y"])
    with Session(made, device="cpu") as opened:
        report = opened.run(cache="cold", timing="graph")
    assert report.cache == "hot"
    notes = [warning.message for warning in report.warnings if warning.code == "W-TIMING"]
    assert len(notes) == 2
    assert any("cache" in note for note in notes)
    assert report.gpu_states == ()
    assert report.roofline is None


def test_sensors_are_read_before_and_after_the_runs_that_count(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = GpuState(1_980, 3_201, 1_980, 40, 300_000)
    states = iter([calm, replace(calm, sm_mhz=1_500, throttle=("power cap",))])
    monkeypatch.setattr(device, "read_state", lambda: next(states))
    with session(device) as opened:
        report = opened.run(iterations=3)
    assert [state.sm_mhz for state in report.gpu_states] == [1_980, 1_500]
    assert {"W-CLOCK", "W-THROTTLE"} <= {warning.code for warning in report.warnings}


def test_S141_profilers_get_a_range_a_run_and_a_step_where_nvtx_is_installed(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges: list[str] = []
    nvtx = SimpleNamespace(push_range=ranges.append, pop_range=lambda: ranges.append("end"), __spec__=True)
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)  # type: ignore[arg-type]
    with session(device) as opened:
        opened.run(iterations=2)
        assert [name for name in ranges if name in ("a", "b")] == ["a", "b"]
        assert ranges.count("kgrun run") >= 2
        assert ranges.count("end") == len(ranges) / 2


class InLine(Feed):
    """A feed whose batches take their places in line; it writes down what happens when."""

    in_line = True

    def __init__(self, happened: list[str]) -> None:
        self.happened = happened

    def next(self) -> None:
        self.happened.append("next")

    def ahead(self) -> None:
        self.happened.append("ahead")


def in_a_row(device: CudaDevice, monkeypatch: pytest.MonkeyPatch, feed: Feed | None, runs: int) -> list[str]:
    happened: list[str] = feed.happened if isinstance(feed, InLine) else []
    elapsed = device.elapsed_ns
    monkeypatch.setattr(device, "elapsed_ns", lambda *marks: happened.append("wait") or elapsed(*marks))
    monkeypatch.setattr(device, "hold", lambda: happened.append("hold"))
    runner = Runner(device, [], [], feed=feed)
    monkeypatch.setattr(runner, "issue", lambda: happened.append("run"))
    measured = runner.measure(Amount(runs, warmup=0, per_step=False))
    assert len(measured.totals) == len(measured.issued) == runs
    assert measured.wall_ns > 0
    return happened


def test_runs_whose_batches_take_their_places_in_line_are_issued_ahead(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = ["next", "run", "ahead"]
    expected = once * 3 + ["wait", *once, "wait", *once, "wait", "wait", "wait"]
    assert in_a_row(device, monkeypatch, InLine([]), 5) == expected


def test_other_runs_are_waited_for_one_by_one(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_a_row(device, monkeypatch, None, 3) == ["run", "wait"] * 3


def test_a_run_whose_steps_were_timed_does_not_wait_for_the_host(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    monkeypatch.setattr(device, "hold", lambda: held.append(1))
    with session(device) as opened:
        opened.run(iterations=4, warmup=0, per_step=False)
        assert held == []
        opened.run(iterations=4, warmup=0, timing="events")
        assert len(held) == 4


def test_a_closed_program_lets_go_of_its_steps(device: CudaDevice) -> None:
    opened = session(device)
    loaded = opened.loaded
    opened.close()
    assert loaded.prepared == []
    with pytest.raises(RuntimeError, match="closed"):
        loaded.runner.issue()
