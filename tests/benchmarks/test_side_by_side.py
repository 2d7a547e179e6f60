"""The benchmark's own logic, without a GPU: checks, sections that fail alone, result files, ncu's text, its graphs."""

from __future__ import annotations

import json
import math
import struct
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.session import Session

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def test_a_check_holds_up_to_its_limit_and_never_for_nan() -> None:
    from harness import Check

    assert Check("a", 1.03, 1.03).ok
    assert not Check("a", 1.031, 1.03).ok
    assert Check("a", 2.5, 2.5, least=True).ok
    assert not Check("a", 2.4, 2.5, least=True).ok
    assert not Check("a", math.nan, 1.0).ok
    assert not Check("a", math.nan, 1.0, least=True).ok
    assert Check("ratio", 1.5, 1.03).text() == "ratio: 1.5 ≤ 1.03: DOES NOT HOLD"


def test_a_section_that_fails_keeps_its_rows_and_says_why(tmp_path: Path) -> None:
    from harness import Check, Section, document, markdown, run_section, write_results

    def work(section: Section) -> None:
        section.columns, section.rows = ("way", "µs"), [("one", 1.23456), ("two", None)]
        section.checks = [Check("ratio", math.nan, 1.0)]
        raise RuntimeError("no such GPU")

    section = run_section("(x) A table", work)
    assert section.error == "RuntimeError: no such GPU"
    text, data = markdown(["# Title"], [section]), document({"ncu": None}, [section])
    assert "| one | 1.235 |" in text
    assert "| two | – |" in text
    assert "- failed: RuntimeError: no such GPU" in text
    write_results(tmp_path / "new", "name", text, data)
    stored = json.loads((tmp_path / "new" / "name.json").read_text("utf-8"), parse_constant=pytest.fail)
    assert stored["sections"][0]["checks"] == [
        {"name": "ratio", "value": None, "limit": 1.0, "least": False, "ok": False}
    ]
    assert (tmp_path / "new" / "name.md").read_text("utf-8") == text


def test_ways_take_turns() -> None:
    from harness import medians_in_turn

    order: list[str] = []

    def way(name: str, values: list[float]) -> Any:
        return lambda: order.append(name) or values.pop(0)

    found = medians_in_turn(3, {"a": way("a", [1, 9, 2]), "b": way("b", [5, 5, 6])})
    assert order == ["a", "b"] * 3
    assert found == {"a": 2, "b": 5}


NCU = """==PROF== Connected to process 1
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","stream","gpu__time_duration.sum","ns","1,250"
"1","stream","gpu__time_duration.sum","us","18.21"
"2","stream","gpu__time_duration.sum","ms","1.5"
"""


def test_ncu_values_become_microseconds() -> None:
    from harness import parse_ncu

    assert parse_ncu(NCU) == pytest.approx([1.25, 18.21, 1500.0])
    assert parse_ncu("==ERROR== no permission") == []


def test_the_graphs_compute_what_they_should() -> None:
    pytest.importorskip("llvmlite")
    from side_by_side_graphs import diamond_graph, stream_graph, tiny_graph

    def outputs(graph: dict[str, Any]) -> dict[str, Any]:
        with Session(KernelGraph.model_validate(graph), device="cpu") as session:
            return session.run().outputs

    first = tiny_graph(1)["tensors"]["t0"]
    assert first["init"] == {"uniform": [0, 1], "seed": 0}
    one, twenty = outputs(tiny_graph(1))["t1"], outputs(tiny_graph(20))["t20"]
    np.testing.assert_allclose(twenty, one + 19, rtol=1e-6)
    assert not outputs(stream_graph(4096))["z"].any()
    diamond = diamond_graph()
    kernel = diamond["kernels"]["quarter"]
    kernel["source"] = kernel["source"].replace("12000", "60")
    np.testing.assert_allclose(outputs(diamond)["y"], 4, rtol=1e-5)  # 0.5 a + 0.5 again and again tends to 1


def test_the_diamonds_branches_get_streams_of_their_own() -> None:
    from side_by_side_graphs import diamond_graph

    from kgrun.graphs.bind import bind
    from kgrun.runtime.lower import lower
    from kgrun.runtime.schedule import parallel_streams

    program = parallel_streams(lower(bind(KernelGraph.model_validate(diamond_graph())), "cuda"))
    streams = {step.name: step.stream for step in program.steps}
    assert len({streams[f"branch_{name}"] for name in "abcd"}) == 4


def test_example_commands_are_those_for_one_gpu() -> None:
    from gpu_side_by_side import example_commands

    page = "    kgrun execute a.yaml --expected e.npz --rtol 1\n    kgrun execute a.yaml --ranks 2\ntext\n"
    assert example_commands(page) == ["execute a.yaml --expected e.npz --rtol 1"]
    found = example_commands((ROOT / "examples" / "README.md").read_text("utf-8"))
    files = {line.split()[1] for line in found}
    assert files == {f"examples/{path.name}" for path in (ROOT / "examples").glob("*.yaml")} - {
        "examples/allreduce.yaml"
    }


def test_an_example_without_figures_is_no_example_that_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import gpu_side_by_side as bench
    from harness import Section

    balance = {"difference_ns": 10, "total_ns": 1_000, "expected_ns": 990, "between_ns": 0, "difference": "gaps"}
    whole = {"comparisons": [{"ok": True}], "balance": balance, "kernels": [1], "issue_ns": 1}
    answers = [whole, whole | {"comparisons": [{"ok": False}]}, {"error": {"message": "no GPU"}}]
    run = lambda *_, **__: SimpleNamespace(stdout=json.dumps(answers.pop(0)), stderr="")  # noqa: E731
    monkeypatch.setattr(bench.subprocess, "run", run)
    section = Section("f")
    for _ in range(3):
        bench._example(["execute", "examples/saxpy.yaml", "--expected", "e.npz"], str(tmp_path), section)
    assert [check.ok for check in section.checks] == [True, True, False, True, False, False]
    assert [row[1] for row in section.rows] == ["equal", "DIFFER"]
    assert section.notes == ["saxpy: no GPU"]


def test_modules_of_the_benchmark_need_no_gpu_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pycuda", "torch"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    for name in ("gpu_side_by_side", "rivals"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import gpu_side_by_side
    import rivals

    assert callable(gpu_side_by_side.main)
    assert "retain_primary_context" in rivals.SAXPY_BY_HAND


def test_sections_run_to_their_end_over_a_fake_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings")
    import gpu_side_by_side as bench
    from harness import Section

    from kgrun.runtime.devices.cuda import CudaDevice
    from tests.runtime.devices.fake_cuda_driver import FACTS, FakeDriver

    driver = FakeDriver(replace(FACTS, total_memory=1 << 24))
    device = CudaDevice(driver=driver)
    monkeypatch.setattr(bench, "raw_pycuda", lambda _device, addresses: places.append(addresses) or (lambda: None))
    monkeypatch.setattr(bench, "hand_captured", lambda _device, issue: (issue, lambda: None))
    monkeypatch.setattr(bench, "torch_ways", dict)
    monkeypatch.setattr(bench, "tiny_graph", lambda: bench_graphs.tiny_graph(12))
    monkeypatch.setattr(bench, "SIZES", {"small": 4 << 10, "large": 8 << 10})
    monkeypatch.setattr(bench, "ncu_durations", lambda *_, **__: ([9.0] * 15 + [0.002] * 15) * 2)  # warm at last
    import side_by_side_graphs as bench_graphs

    places: list[list[int]] = []
    tiny, kernels, diamond = Section("a"), Section("b"), Section("c")
    bench.tiny_kernels(device, tiny)
    assert {row[0] for row in tiny.rows} >= {"kgrun, replay", "kgrun, lean loop", "hand-captured graph"}
    assert len(tiny.checks) == 3
    used = [struct.unpack("<2Q", launch[3]) for launch in driver.launches if launch[0] == "tiny"][:12]
    assert places[0] == [used[0][0], *(z for _, z in used)]  # by hand on the addresses that kgrun's launches have
    bench.kernel_times(device, kernels)
    assert [row[0] for row in kernels.rows] == ["small", "large"]
    assert [row[3] for row in kernels.rows] == [0.002] * 2
    assert len(kernels.checks) == 4
    bench.diamond(device, diamond)
    assert [row[0] for row in diamond.rows] == ["file", "auto"]
    assert len({launch[0] for launch in driver.launches} & {"tiny", "quarter", "join"}) == 3
    device.close()
