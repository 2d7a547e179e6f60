"""Offload as the command line asks for it: the device profile, and the plan within the limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from kgrun.cli.options import Memory, Offload
from kgrun.graphs.errors import UsageError

if TYPE_CHECKING:
    from kgrun.runtime.memory.offload.fit import Pack
    from kgrun.runtime.memory.offload.records import OffloadMode
    from kgrun.runtime.memory.offload.times import DeviceProfile
    from kgrun.runtime.memory.plan_types import MemoryPlan
    from kgrun.runtime.program import Program


def read_profile(text: str | None) -> DeviceProfile | None:
    """The profile of `--device-profile`: a built-in one by its name, or a report; None where none was given.

    Raises:
        UsageError: KG260.
    """
    if text is None:
        return None
    from kgrun.runtime.memory.offload.times import named_profile, report_profile

    if not text.lower().endswith(".json"):
        return named_profile(text)
    try:
        document = json.loads(Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {text}: {error.strerror or error}", code="KG260") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{text} is no JSON document", code="KG260") from None
    if not isinstance(document, dict):
        raise UsageError(f"{text} is no report of `kgrun execute --json`", code="KG260")
    return report_profile(document, text)


def offload_mode(memory: Memory, offload: Offload) -> OffloadMode:
    """The mode of offload that goes with a mode of memory.

    Raises:
        UsageError: moves were asked for where nothing moves.
    """
    from kgrun.runtime.planning import offload_where

    return offload_where(None if memory is Memory.planned else f"--memory {memory.value}", offload.value)


def plan_offloaded(
    program: Program, pack: Pack, limit: int | None, mode: OffloadMode, profile: str | None
) -> tuple[Program, MemoryPlan]:
    """The program within the limit, with transfers and their bounds where it takes them, and its plan."""
    from dataclasses import replace

    from kgrun.runtime.memory.offload.fit import plan_within, problem_of

    known = read_profile(profile)
    fitted, plan = plan_within(program, pack, limit, mode, known)
    if fitted.offload is None:
        return fitted, plan
    from kgrun.runtime.memory.offload.bounds import bounds_of

    bounds = bounds_of(problem_of(program, limit, known), fitted.offload.predicted_ns)
    return replace(fitted, offload=replace(fitted.offload, bounds=bounds)), plan
