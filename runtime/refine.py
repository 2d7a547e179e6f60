"""Plan transfers again by what the first schedule's steps and copies took on this device (S107)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kgrun.graphs.errors import UsageError
from kgrun.runtime.host_data import Array
from kgrun.runtime.loaded import LoadedProgram
from kgrun.runtime.measure import Amount
from kgrun.runtime.memory.offload.fit import default_profile
from kgrun.runtime.memory.offload.times import measured_profile
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.planning import Planning
from kgrun.runtime.program import Program

_RUNS = 5


def refined(
    loaded: LoadedProgram, program: Program, planning: Planning, given: Mapping[str, Array], seed: int
) -> tuple[Program, MemoryPlan] | None:
    """The program and plan by measured times; None where they were given, or an input has no data yet.

    Args:
        loaded: the program as first planned, on its device; its parameters must be loaded again.
        program: the same without transfers.
    """
    if planning.profile is not None or loaded.program.offload is None or planning.offload == "seeds":
        return None
    try:
        loaded.load(given, seed, inputs=True)
    except UsageError:
        return None
    with loaded.feed.held():
        measured = loaded.runner.measure(Amount(_RUNS, per_step=True))
    medians = {i: sorted(times)[len(times) // 2] for i, times in enumerate(measured.samples) if times}
    profile = measured_profile(loaded.program, medians, default_profile(program))
    return replace(planning, profile=profile).plan(program)


def same_steps(one: Program, other: Program) -> bool:
    """Whether two programs run the same steps on the same buffers in the same order."""
    return one.buffers == other.buffers and [s.name for s in one.steps] == [s.name for s in other.steps]
