"""Every kernel of the corpus: right against numpy, clean under all checks, right under other schedules."""

from __future__ import annotations

import pytest

from kgrun.runtime.compile.ptx.module import EXACT
from tests.runtime.compile.ptx.corpus import CASES
from tests.runtime.compile.ptx.harness import ALL_CHECKS, Case, check_case, compiled

pytest.importorskip("llvmlite")
pytest.importorskip("cuda.bindings")
# Correct kernels whose order only atomics and fences make: the quick pass cannot clear them.
ORDERED_BY_ATOMICS = {
    "last block reduces",
    "spin lock",
    "a block waits for a later block",
    "arrive and wait apart (cuda::barrier)",
    "asynchronous copies that arrive at a barrier",
    "asynchronous copies in a pipeline",
    "asynchronous copy that counts as an arrival",
}
# Correct kernels that cannot be run twice.
TAKE_MEMORY = {"device memory from malloc", "lists of nodes from new", "bytes and vectors in memory of odd sizes"}
every_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


@every_case
def test_agrees_with_numpy(case: Case) -> None:
    check_case(case)


@every_case
def test_no_check_reports_a_fault(case: Case) -> None:
    check_case(case, checks=ALL_CHECKS)


@every_case
def test_the_quick_pass_clears_all_but_what_atomics_order_or_takes_memory(case: Case) -> None:
    compiled.cache_clear()  # a kernel remembers that the exact pass was needed
    check_case(case, checks=ALL_CHECKS, threads=1)  # with several workers it depends on who runs which block
    module = compiled(case.source, case.options, ALL_CHECKS)
    passes = {mode for name in module.entries for mode, _ in module.kernel(name)._compiled}
    assert (EXACT in passes) == (case.name in ORDERED_BY_ATOMICS | TAKE_MEMORY)


@every_case
def test_any_schedule_gives_the_same(case: Case) -> None:
    for schedule in ("reverse", "random:1", "random:2"):
        check_case(case, schedule=schedule)


def test_the_corpus_is_large_enough() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.slow
@every_case
def test_twenty_random_schedules_report_nothing(case: Case) -> None:
    for seed in range(20):
        check_case(case, checks=ALL_CHECKS, schedule=f"random:{seed}")
