"""Streams of a program and the events that order them, as rows and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.table import Table
from kgrun.runtime.streams import plan_streams

if TYPE_CHECKING:
    from kgrun.runtime.program import Program


def stream_rows(program: Program) -> dict[str, Any]:
    """The `streams` and `events` parts of the JSON document."""
    streams = plan_streams(program)
    names = [step.name for step in program.steps]
    return {
        "streams": [
            {"name": name, "steps": [s.name for s in program.steps if s.stream == name]} for name in streams.names
        ],
        "events": [
            {
                "record_after": names[e.record_after],
                "source": e.source,
                "wait_before": names[e.wait_before],
                "target": e.target,
            }
            for e in streams.events
        ],
    }


def stream_sections(program: Program) -> Iterator[Table | str]:
    """Streams with their number of steps, then record and wait pairs."""
    found = stream_rows(program)
    rows = [(row["name"], str(len(row["steps"]))) for row in found["streams"]]
    yield Table("Streams", ("stream", ">steps"), rows)
    if found["events"]:
        cells = [(e["record_after"], e["source"], e["wait_before"], e["target"]) for e in found["events"]]
        yield Table("Events", ("record after", "on", "wait before", "on"), cells)
