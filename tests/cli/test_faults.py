"""Faults through the command line on a stand-in for a GPU: the right kernel, the right exit, one error block."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cuda.bindings")


def test_a_fault_of_the_second_kernel_is_traced_to_it_and_not_to_the_third(fake_gpu: Any) -> None:
    done = fake_gpu(second="illegal")
    assert (done.code, done.out) == (6, "")
    assert done.err.count("error[") == 1
    assert done.err.startswith("error[KG601]: kernel 'second' of node 'n1' failed: an illegal memory access")
    assert "nodes[1]" in done.err
    assert "step 2 of 3, grid 1×1×1, block 8×1×1" in done.err
    assert "found by a second run" in done.err
    assert "third" not in done.err


@pytest.mark.parametrize("how", [(), ("--no-graph",), ("--streams", "auto")])
def test_the_same_kernel_is_named_however_the_graph_runs(fake_gpu: Any, how: tuple[str, ...]) -> None:
    done = fake_gpu("--json", *how, third="misaligned")
    error = done.json()["error"]
    assert (done.code, done.err) == (6, "")
    details = error["details"]
    assert (details["kernel"], details["node"], details["step"]) == ("third", "n2", 2)
    assert (details["grid"], details["block"]) == ([1, 1, 1], [8, 1, 1])
    assert details["cuda_error"] == "CUDA_ERROR_MISALIGNED_ADDRESS"
    assert "n2" in details["suspects"]


def test_S139_sync_each_finds_the_kernel_in_the_first_run(fake_gpu: Any) -> None:
    done = fake_gpu("--sync-each", "--tell", first="assert")
    assert done.code == 6
    assert "kernel 'first' of node 'n0' failed: device-side assert triggered" in done.err
    assert "second run" not in done.err
    assert done.err.count("closed, lost") == 1


def test_sync_each_without_a_fault_reports_as_ever(fake_gpu: Any) -> None:
    done = fake_gpu("--sync-each", "--iterations", "3", "--json")
    assert done.code == 0
    document = done.json()
    assert document["iterations"] == 3
    assert [row["time_ns"]["count"] for row in document["kernels"]] == [3, 3, 3]


def test_a_fault_that_does_not_happen_again_names_its_suspects(fake_gpu: Any) -> None:
    done = fake_gpu("--json", second="once")
    error = done.json()["error"]
    assert done.code == 6
    assert error["details"]["suspects"] == ["n0", "n1", "n2"]
    assert "node" not in error["details"]
    assert "issued since the last wait: n0, n1, n2" in error["message"]
    assert "did not fail" in error["help"]


def test_a_graph_from_standard_input_is_traced_too(fake_gpu: Any, chain: Path) -> None:
    done = fake_gpu(graph="-", stdin=chain.read_text(encoding="utf-8"), second="illegal")
    assert done.code == 6
    assert "kernel 'second' of node 'n1' failed" in done.err


def test_a_refused_launch_names_its_kernel_without_a_second_run(fake_gpu: Any) -> None:
    done = fake_gpu("--tell", second="refused")
    assert done.code == 6
    assert "kernel 'second' of node 'n1' cannot be launched: too many resources" in done.err
    assert "second run" not in done.err
    assert done.err.count("closed, well, 0 allocations") == 1


def test_a_hang_under_a_time_limit_names_the_kernel_that_ran(fake_gpu: Any) -> None:
    done = fake_gpu("--timeout", "6", "--json", second="hang")
    error = done.json()["error"]
    assert (done.code, done.err, error["code"]) == (9, "hangs\n", "KG900")
    assert "while kernel 'second' of node 'n1' was running" in error["message"]
    assert (error["details"]["node"], error["details"]["step"]) == ("n1", 1)
    assert "nodes[1]" in error["where"]


def test_a_fault_under_a_time_limit_needs_no_second_run(fake_gpu: Any) -> None:
    done = fake_gpu("--timeout", "50", third="illegal")
    assert done.code == 6
    assert "kernel 'third' of node 'n2' failed" in done.err
    assert "second run" not in done.err


def test_out_of_memory_has_a_row_each_for_planned_free_and_contexts(fake_gpu: Any) -> None:
    done = fake_gpu("--dim", "n=200000", "--json")
    error = done.json()["error"]
    assert (done.code, error["code"]) == (4, "KG410")
    rows = [line[2:18].strip() for line in error["message"].splitlines()[1:]]
    assert rows == ["planned", "free", "held by this run", "held by contexts", "total"]
    assert error["details"]["planned_bytes"] == 3_201_024
    assert error["details"]["context_bytes"] == 4_096


def test_control_c_ends_a_run_whose_kernel_hangs(fake_gpu: Any, chain: Path) -> None:
    with fake_gpu.start("--sync-each", second="hang") as running:
        assert running.stderr.readline() == "hangs\n"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert [line for line in err.splitlines() if line != "hangs"] == [
        "error[KG130]: interrupted while the device did not answer"
    ]


@pytest.mark.parametrize(("ending", "code"), [("exit", 3), ("interrupt", 130), ("illegal", 6), ("refused", 6)])
def test_every_way_out_closes_the_context(fake_gpu: Any, ending: str, code: int) -> None:
    done = fake_gpu("--sync-each", "--tell", second=ending)
    assert done.code == code
    assert done.err.count("closed, ") == 1
    assert "0 allocations" in done.err or ending == "illegal"


def test_the_cold_report_says_where_the_first_second_goes(fake_gpu: Any, faults: Any) -> None:
    from kgrun.cli.render.schema import report_schema

    document = fake_gpu("--cold-report", "--sync-each", "--json").json()
    assert faults(document, {"$ref": "#/$defs/execute", "$defs": report_schema()["$defs"]}) == []
    names = [row["phase"] for row in document["cold"]["phases"]]
    for name in ("import, read options", "load graph and inputs", "bind", "open device", "plan", "compile", "load"):
        assert name in names
    assert [row["kind"] for row in document["cold"]["compiled"]] == ["cubin"] * 3
    assert document["cold"]["total_ns"] == sum(row["ns"] for row in document["cold"]["phases"])


def test_the_cold_report_is_a_table_in_the_text(kgrun: Any, graph_file: Any) -> None:
    done = kgrun("execute", graph_file(), "--device", "cpu", "--cold-report")
    assert done.code == 0
    assert "\nCold start\n" in done.out
    assert "first run" in done.out
