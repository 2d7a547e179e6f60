"""Listings of a plan in a folder, for a bug report or a comparison (S63)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kgrun.cli.output import write_text
from kgrun.cli.packing import export_plan

if TYPE_CHECKING:
    from kgrun.runtime.memory.plan_types import MemoryPlan
    from kgrun.runtime.program import Program


def save_listings(folder: Path, program: Program, plan: MemoryPlan) -> None:
    """Write steps.txt, buffers.csv, decisions.txt, packing.csv and map.svg; each file whole or not at all.

    Raises:
        UsageError: the folder cannot be made or written to.
    """
    from kgrun.cli.render.memory_map import plan_map, svg_map
    from kgrun.graphs.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}", code="KG258") from None
    write_text(folder / "steps.txt", "\n".join(_steps(program)) + "\n")
    write_text(folder / "buffers.csv", _buffers(program, plan))
    write_text(folder / "decisions.txt", "".join(f"{line}\n" for line in _decisions(program)))
    write_text(folder / "map.svg", svg_map(plan_map(program, plan)))
    export_plan(folder / "packing.csv", plan)


def _steps(program: Program) -> Iterator[str]:
    for step in program.steps:
        reads, writes = (" ".join(program.buffers[b].name for b in found) for found in (step.reads, step.writes))
        after = f" after {' '.join(map(str, step.after))}" if step.after else ""
        what = f"{step.name} ({step.op}) on {step.stream}{after}"
        yield f"{step.index} {what}: reads {reads or '-'}; writes {writes or '-'}"


def _buffers(program: Program, plan: MemoryPlan) -> str:
    import csv

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["buffer", "name", "class", "space", "offset", "nbytes", "held", "first_step", "last_step", "tensors"]
    )
    for p in plan.placements:
        tensors = " ".join(program.buffers[p.buffer].tensors)
        writer.writerow(
            [
                p.buffer,
                p.name,
                p.memory_class,
                p.space,
                p.offset,
                p.nbytes,
                p.aligned,
                p.first_step,
                p.last_step,
                tensors,
            ]
        )
    return text.getvalue()


def _decisions(program: Program) -> Iterator[str]:
    for d in program.decisions:
        yield f"{d.node}: {d.output} in place of {d.input}: {'granted' if d.granted else 'refused'}, {d.reason}"
