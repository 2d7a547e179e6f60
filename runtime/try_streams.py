"""`streams="auto"`: independent branches side by side, kept where that is faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.host_data import Array
from kgrun.runtime.loaded import LoadedProgram
from kgrun.runtime.measure import Amount
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.planning import Planning
from kgrun.runtime.program import Program
from kgrun.runtime.report import StreamChoice
from kgrun.runtime.schedule import parallel_streams
from kgrun.runtime.statistics import time_stats


def spread_plan(program: Program, planning: Planning) -> tuple[Program, MemoryPlan] | None:
    """The program with independent branches on streams of their own, and its plan.

    None where there are no such branches, or where only the program as it is fits the limit.
    """
    spread = parallel_streams(program)
    if spread is program:
        return None
    try:
        return replace(planning, offload="off").plan(spread)
    except DoesNotFit:
        return None


def try_streams(
    loaded: LoadedProgram,
    spread: tuple[Program, MemoryPlan],
    load: Callable[[Program, MemoryPlan], LoadedProgram],
    given: Mapping[str, Array],
    seed: int,
) -> tuple[LoadedProgram, StreamChoice]:
    """Time the loaded program, then the spread one in its place; the faster, loaded. One at a time is on the device."""
    before = loaded.program, loaded.plan
    one_ns = _median_run(loaded, given, seed)
    loaded.close()
    chosen = load(*spread)
    try:
        many_ns = _median_run(chosen, given, seed)
    except BaseException:
        chosen.close()
        raise
    if many_ns >= one_ns:
        chosen.close()
        chosen = load(*before)
    else:
        chosen.load(given, seed, inputs=False)
    count = len({step.stream for step in spread[0].steps})
    return chosen, StreamChoice(count if many_ns < one_ns else 1, count, one_ns, many_ns)


def _median_run(loaded: LoadedProgram, given: Mapping[str, Array], seed: int) -> int:
    loaded.load(given, seed, inputs=True)
    with loaded.feed.held():
        stats = time_stats(loaded.runner.measure(Amount(20, per_step=False)).totals)
    assert stats is not None
    return stats.median
