"""Barriers of the whole grid: every block of a cooperative launch is in flight, and what was before is seen after."""

from __future__ import annotations

import numpy as np
import pytest

from kgrun.graphs.errors import DeviceFault
from kgrun.runtime import Session
from kgrun.runtime.compile.ptx.launch import BufferInfo
from tests.runtime.compile.ptx.harness import ALL_CHECKS, compiled, dims, pack
from tests.support import graph, node, tensor

pytest.importorskip("llvmlite")
pytest.importorskip("cuda.bindings")

SUM = """#include <cooperative_groups.h>
extern "C" __global__ void k(const int* x, int* part, int* o, int rounds) {
  auto grid = cooperative_groups::this_grid();
  int t = threadIdx.x, b = blockIdx.x, i = b * 32 + t;
  for (int n = 0; n < rounds; n++) {
    int next = (b + n + 1) % gridDim.x;
    part[i] = x[i] + n + (n ? o[i] : 0);
    GRID_SYNC
    o[i] = part[next * 32 + t];
    grid.sync();
  }
}
"""


def run(source, blocks, rounds, cooperative=True, checks=frozenset(), schedule="forward", threads=None):  # type: ignore[no-untyped-def]
    x, part, o = np.arange(32 * blocks, dtype=np.int32), *(np.zeros(32 * blocks, np.int32) for _ in range(2))
    args = [x, part, o]
    buffers = [BufferInfo(str(n), each.ctypes.data, each.nbytes) for n, each in enumerate(args)]
    kernel = compiled(source, (), checks).kernel("k")
    done = kernel.launch(
        dims(blocks), dims(32), 0, pack([*args, np.int32(rounds)]),
        buffers=buffers, schedule=schedule, threads=threads, timeout_s=60, cooperative=cooperative,
    )  # fmt: skip
    want = np.zeros_like(x)
    for n in range(rounds):
        part = x + n + want
        want = np.roll(part.reshape(blocks, 32), -(n + 1), axis=0).reshape(-1)
    return done.faults, o, want


@pytest.mark.parametrize(("blocks", "threads"), [(1, 1), (7, 2), (200, 1), (200, 3)])
def test_what_a_block_wrote_before_all_see_after(blocks: int, threads: int) -> None:
    faults, found, want = run(SUM.replace("GRID_SYNC", "grid.sync();"), blocks, 5, threads=threads)
    assert faults == []
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("schedule", ["forward", "reverse", "random:3"])
def test_checks_know_the_order_that_a_grid_barrier_makes(schedule: str) -> None:
    source = SUM.replace("GRID_SYNC", "grid.sync();")
    faults, found, want = run(source, 80, 3, checks=ALL_CHECKS, schedule=schedule)
    assert [str(fault) for fault in faults] == []
    np.testing.assert_array_equal(found, want)


def test_a_race_of_blocks_without_the_barrier_is_found() -> None:
    faults, _, _ = run(SUM.replace("GRID_SYNC", "__syncthreads();"), 8, 2, checks=ALL_CHECKS)
    assert "block-race" in {fault.kind for fault in faults}


def test_a_launch_that_is_not_cooperative_traps_as_on_a_gpu() -> None:
    faults, _, _ = run(SUM.replace("GRID_SYNC", "grid.sync();"), 2, 1, cooperative=False)
    assert [fault.kind for fault in faults] == ["trap"]


def test_a_graph_asks_for_a_cooperative_launch() -> None:
    source = "#include <cooperative_groups.h>\n" + (
        'extern "C" __global__ void k(const float* x, float* y, float* sums) { int i = blockIdx.x * 32 + threadIdx.x;'
        " if (!threadIdx.x) sums[blockIdx.x] = x[i]; cooperative_groups::this_grid().sync();"
        " float sum = 0; for (int b = 0; b < gridDim.x; b++) sum += sums[b]; y[i] = sum; }"
    )
    tensors = {
        "x": tensor("input", [128], "float32", value=list(range(128))),
        "y": tensor(None, [128], "float32"),
        "s": tensor(None, [4], "float32"),
    }
    for cooperative in (True, False):
        launch = node("n", ["x"], ["y", "s"], grid=[4], cooperative=cooperative)
        kernels = {"k": {"entry": "k", "source": source}}
        with Session(graph([launch], tensors, ["y"], kernels=kernels), device="cpu") as session:
            if cooperative:
                assert set(session.run().outputs["y"]) == {0 + 32 + 64 + 96}
            else:
                with pytest.raises(DeviceFault, match="trap"):
                    session.run()
