"""Checks inside custom kernels on the CPU: planted bugs found at their line, correct kernels left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import DeviceFault, DeviceUnavailable, GraphError
from kgrun.graphs.load import load_graph
from kgrun.runtime import Session
from kgrun.runtime.report import RunReport
from tests.support import graph, node, tensor

pytest.importorskip("cuda.bindings")
pytest.importorskip("llvmlite")

GRAPH = """
kgrun: 1
tensors:
  x: {role: input, dtype: float32, shape: [4, 8], init: {uniform: [1, 2]}}
  y: {dtype: float32, shape: [4, 8]}
kernels:
  k:
    entry: k
    source: |
      extern "C" __global__ void k(const float* x, float* y, float* scratch) {
        __shared__ float tile[32];
        int i = threadIdx.x;
        BODY
      }
nodes:
  - {name: n, kernel: k, inputs: [x], outputs: [y], args: [x, y, {workspace: 0}], workspace: [128], grid: [GRID],
     block: [32]}
outputs: [y]
"""
FIRST = 13  # line of BODY in the file


def run(folder: Path, body: str, *checks: str, grid: int = 1, **options: Any) -> RunReport:
    """Run `body`, whose lines are indented as the source is."""
    path = folder / "graph.yaml"
    path.write_text(GRAPH.replace("BODY", body.replace("\n", "\n        ")).replace("GRID", str(grid)))
    with Session(load_graph(path), device="cpu", checks=checks, **options) as session:
        return session.run()


PLANTED = {
    "write behind the end": ("y[i] = x[i];\nif (i == 5) y[32] = 1;", "bounds", 1, "y"),
    "read before the start": ("y[i] = x[i - 1];", "bounds", 0, "x"),
    "one past in a loop": ("for (int j = i; j <= 32; j += 32)\n  y[j] = j;", "bounds", 1, "y"),
    "far away": ("y[i] = x[i];\nif (i == 0) y[1 << 20] = 1;", "bounds", 1, ""),
    "behind shared memory": ("tile[i + 1] = x[i];\n__syncthreads();\ny[i] = tile[i];", "bounds", 0, "shared tile"),
    "workspace too small": ("scratch[i * 2] = 1;\ny[i] = x[i];", "bounds", 0, "n.workspace[0]"),
    "misaligned": ("y[i] = x[i];\nif (i == 0) *(float*)((char*)y + 2) = 1;", "bounds", 1, "y"),
    "writes its input": ("y[i] = x[i];\n((float*)x)[i] = 0;", "readonly", 1, "x"),
    "no barrier": ("tile[i] = x[i];\ny[i] = tile[31 - i];", "race", 0, "shared tile"),
    "all write one place": ("y[i] = x[i];\nif (i > 15) y[0] = i;", "race", 1, "y"),
    "never written": ("if (i < 20) y[i] = x[i];", "init", None, "y"),
    "reads what nothing wrote": ("y[i] = x[i];\nif (i == 7) y[i] = scratch[3];", "init", 1, "n.workspace[0]"),
    "uninitialised shared": (
        "if (i < 16) tile[i] = x[i];\n__syncthreads();\ny[i] = tile[i];",
        "init",
        2,
        "shared tile",
    ),
    "infinite": ("y[i] = 1 / (x[i] - x[i]);", "nan", None, "y"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found_at_its_line(tmp_path: Path, name: str) -> None:
    body, check, line, tensor = PLANTED[name]
    report = run(tmp_path, body, "all")
    found = [each for each in report.findings if each.check == check]
    assert len(found) == 1, [each.message for each in report.findings]
    assert tensor in ("", found[0].tensor)
    where = found[0].where
    assert where is not None
    assert where.file == str(tmp_path / "graph.yaml")
    if line is not None:
        assert (where.path, where.line) == (("kernels", "k", "source"), FIRST + line)


def test_memory_from_malloc_is_the_kernels_own_until_it_is_freed(tmp_path: Path) -> None:
    take = "volatile float* p = (float*)malloc(8);\np[1] = x[i];\ny[i] = p[1];\n"
    assert run(tmp_path, take + "free((void*)p);", "all").findings == ()
    (freed,) = run(tmp_path, take + "free((void*)p);\ny[i] = p[1];", "all").findings
    who = "'n' (k), block (0, 0, 0), thread (0, 0, 0)"
    assert freed.message == f"{who} reads memory from malloc after it was freed; 32 times"
    (past,) = run(tmp_path, take + "p[2] = 0;\nfree((void*)p);", "all").findings
    assert (past.check, past.message) == ("bounds", f"{who} writes memory from malloc, out of bounds; 32 times")
    (twice,) = run(tmp_path, take + "free((void*)p);\nfree((void*)p);", "all").findings
    assert twice.message == f"{who} frees what malloc did not give, or what was freed before; 32 times"


def test_every_fault_is_reported_and_the_run_goes_to_its_end(tmp_path: Path) -> None:
    report = run(tmp_path, "y[i] = 2 * x[i];\nif (i == 5) y[32] = 1;\nif (i == 6) y[-1] = 1;", "bounds")
    assert [(f.where.line if f.where else 0, f.thread) for f in report.findings] == [
        (FIRST + 1, (5, 0, 0)),
        (FIRST + 2, (6, 0, 0)),
    ]
    assert np.isfinite(report.outputs["y"]).all()


def test_a_race_is_one_finding_with_both_accesses(tmp_path: Path) -> None:
    (found,) = run(tmp_path, "tile[i] = x[i];\ny[i] = tile[31 - i];", "race").findings
    assert found.other is not None
    lines = {place.line for place in (found.where, found.other.where) if place is not None}
    assert lines == {FIRST, FIRST + 1}
    assert found.thread != found.other.thread


def test_elements_are_named_by_their_place(tmp_path: Path) -> None:
    (found,) = run(tmp_path, "y[i] = x[i];\nif (i == 5) ((float*)x)[11] = 1;", "bounds").findings
    assert found.element == 11
    assert "thread (5, 0, 0) writes x[1, 3], an input" in found.message


def test_blocks_that_race(tmp_path: Path) -> None:
    report = run(tmp_path, "y[i] = x[i] + blockIdx.x;", "race", grid=2)
    assert [found.check for found in report.findings] == ["race"]
    assert "another block" in report.findings[0].message


CORRECT = "tile[i] = x[i];\n__syncthreads();\nscratch[i] = tile[31 - i];\n__syncthreads();\ny[i] = scratch[31 - i];"


@pytest.mark.parametrize("schedule", ["forward", "reverse", "random:1", "random:22"])
def test_a_correct_kernel_has_no_findings(tmp_path: Path, schedule: str) -> None:
    report = run(tmp_path, CORRECT, "all", schedule=schedule)
    assert report.findings == ()
    assert len(report.checked) == 7


def test_a_schedule_alone_shows_what_depends_on_it(tmp_path: Path) -> None:
    body = "if (i % 32 == 0) atomicExch(&scratch[0], (float)blockIdx.x);\ny[i] = x[i];\nif (i == 0) y[0] = scratch[0];"
    last = {s: run(tmp_path, body, grid=3, schedule=s).outputs["y"][0, 0] for s in ("forward", "reverse")}
    assert last == {"forward": 2, "reverse": 0}


def test_a_trap_ends_a_plain_run_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(DeviceFault, match="trapped") as caught:
        run(tmp_path, "y[i] = x[i];\nif (i == 3) __trap();")
    assert (caught.value.code, caught.value.exit) == ("KG611", 6)
    assert caught.value.where is not None
    assert caught.value.where.line == FIRST + 1


@pytest.mark.parametrize("schedule", ["forward", "reverse", "random:1"])
def test_what_a_trap_left_unwritten_is_no_fault_beside_it(tmp_path: Path, schedule: str) -> None:
    report = run(tmp_path, "if (i == 3) __trap();\ny[i] = x[i];", "all", schedule=schedule)
    assert [(each.check, each.thread) for each in report.findings] == [("trap", (3, 0, 0))]


def test_checked_runs_compare_types_of_arguments(tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(GRAPH.replace("BODY", "y[i] = x[i];").replace("GRID", "1").replace("[x, y, {", "[y, x, {"))
    with pytest.raises(GraphError, match="the kernel cannot write it"):
        Session(load_graph(path), device="cpu", checks=["nan"])


SKIP = """
kgrun: 1
tensors:
  x: {role: input, dtype: float32, shape: [32], init: {fill: 1}}
  a: {dtype: float32, shape: [32]}
  b: {dtype: float32, shape: [32]}
  c: {dtype: float32, shape: [32]}
kernels:
  good: {entry: k, source: "__global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }"}
  tma:
    entry: k
    source: |
      extern "C" __global__ void k(const float* x, float* y) {
        asm volatile("wgmma.fence.sync.aligned;");
        y[threadIdx.x] = x[threadIdx.x];
      }
nodes:
  - {name: first, kernel: good, inputs: [x], outputs: [a], grid: [1], block: [32]}
  - {name: second, kernel: tma, inputs: [x], outputs: [b], grid: [1], block: [32]}
  - {name: third, kernel: good, inputs: [b], outputs: [c], grid: [1], block: [32]}
outputs: [a, c]
"""


def test_what_cannot_run_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(SKIP)
    with pytest.raises(DeviceUnavailable, match="wgmma") as caught:
        Session(load_graph(path), device="cpu")
    assert caught.value.exit == 7
    assert caught.value.where is not None
    assert caught.value.where.line == 14


@pytest.mark.parametrize("checks", [(), ("all",)])
def test_skipped_kernels_and_what_needs_them_leave_poison(tmp_path: Path, checks: tuple[str, ...]) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(SKIP)
    with Session(load_graph(path), device="cpu", allow_skip=True, checks=checks) as session:
        report = session.run()
    assert [each.name for each in report.skipped] == ["second", "third"]
    assert "wgmma" in report.skipped[0].reason
    assert "it reads 'b'" in report.skipped[1].reason
    assert report.uncomputed == ("c",)
    assert (report.outputs["a"] == 1).all()
    assert np.isnan(report.outputs["c"]).all()
    assert report.findings == ()


KERNELS = Path(__file__).parents[2] / "data" / "kernels"


def test_the_overrun_in_a_generated_kernel_is_found_at_its_line() -> None:
    source = (KERNELS / "tvm_shared_overrun.cu").read_text()
    line = next(i for i, row in enumerate(source.splitlines(), 1) if row.endswith("= red_buf0_ptr[0];"))
    shapes = {"out": (1, 8, 12, 96), "a": (1, 8, 12, 96), "b": (1, 2, 1, 1), "w": (8, 2, 1, 1), "bias": (1, 8, 1, 1)}
    tensors = {name: tensor("input", shape, "float32", init={"uniform": [0, 1]}) for name, shape in shapes.items()}
    tensors["out"] = tensor(None, shapes["out"], "float32")
    launch = node("n", ["a", "b", "w", "bias"], ["out"], args=list(shapes), block=[32, 16])
    entry = "fused_conv2d4_add4_multiply1_add5_tir_clip_multiply2_kernel"
    made = graph([launch], tensors, ["out"], kernels={"k": {"source": source, "entry": entry}})
    with Session(made, device="cpu", checks=["bounds", "init", "redzone", "nan"]) as session:
        (found,) = session.run().findings
    assert (found.check, found.tensor, found.thread) == ("bounds", "shared lv24_shared_ptr", (0, 8, 0))
    assert found.where is not None
    assert found.where.line == line
