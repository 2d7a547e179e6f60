"""Memory that checked kernels take by malloc: it outlives launches, its atomics order, and it comes back."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.compile.ptx.harness import ALL_CHECKS, launch

pytest.importorskip("llvmlite")
pytest.importorskip("cuda.bindings")

KEEP = """
extern "C" __global__ void take(int** kept) {
  kept[threadIdx.x] = (int*)malloc(8);
  kept[threadIdx.x][1] = threadIdx.x;
}
"""
USE = """
extern "C" __global__ void use(int** kept, int* o, int past) {
  o[threadIdx.x] = kept[threadIdx.x][1 + past];
}
"""
DROP = """
extern "C" __global__ void drop(int** kept) { free(kept[threadIdx.x]); }
"""


def test_what_one_kernel_took_another_uses_and_a_third_frees() -> None:
    kept, o = np.zeros(32, np.int64), np.zeros(32, np.int32)
    bounds = frozenset(("bounds",))
    assert launch(KEEP, [kept], entry="take", checks=bounds).faults == []
    assert launch(USE, [kept, o, np.int32(0)], entry="use", checks=bounds).faults == []
    np.testing.assert_array_equal(o, np.arange(32))
    (fault,) = launch(USE, [kept, o, np.int32(1)], entry="use", checks=bounds).faults
    assert (fault.kind, fault.tensor, fault.count) == ("out-of-bounds", "memory from malloc", 32)
    assert launch(DROP, [kept], entry="drop", checks=bounds).faults == []
    (fault,) = launch(USE, [kept, o, np.int32(0)], entry="use", checks=bounds).faults
    assert (fault.kind, fault.line, fault.count) == ("use-after-free", 3, 32)
    (fault,) = launch(DROP, [kept], entry="drop", checks=bounds).faults
    assert (fault.kind, fault.operation, fault.count) == ("bad-free", "free", 32)


def test_memory_that_is_freed_is_used_again_and_more_than_there_is_is_null() -> None:
    source = """
extern "C" __global__ void k(int* o) {
  int good = 0;
  for (int n = 0; n < 8; n++) {
    char* p = (char*)malloc(100 << 20);
    if (!p) continue;
    p[0] = p[(100 << 20) - 1] = n, good++;
    free(p);
  }
  o[0] = good, o[1] = malloc(1ull << 40) == nullptr, o[2] = malloc(0) == nullptr;
}
"""
    o = np.zeros(3, np.int32)
    assert launch(source, [o], block=1, checks=ALL_CHECKS).faults == []
    assert list(o) == [8, 1, 1]
