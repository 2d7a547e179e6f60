"""A run as a Chrome trace (also read by Perfetto): a track a stream, and counters of live memory.

Format: "Trace Event Format" of the Chromium project; times are microseconds, `X` events of a track must not overlap.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.lifetimes import live_dynamic_bytes
from kgrun.cli.render.ranks import rank_events
from kgrun.graphs.version import __version__

if TYPE_CHECKING:
    from kgrun.runtime.report import RunReport

PROCESS = 1
Event = dict[str, Any]


def trace_text(report: RunReport) -> str:
    """The trace as JSON text, an event a line."""
    events = [*_metadata(report), *_steps(report), *_memory(report), *rank_events(report, PROCESS)]
    about = {
        "kgrun": __version__,
        "graph": report.program.graph.source.name,
        "device": report.device.name,
        "versions": report.device.versions,
    }
    lines = ",\n".join(json.dumps(event, allow_nan=False) for event in events)
    return f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(about)}, "traceEvents": [\n{lines}\n]}}\n'


def timeline(report: RunReport) -> list[tuple[int, int, int]]:
    """(step, start, duration) in nanoseconds; medians one after the other where the run has no timeline."""
    if report.timeline:
        return list(report.timeline)
    spans, clock = [], 0
    for index, step in enumerate(report.steps):
        if step.times is not None:
            spans.append((index, clock, step.times.median))
            clock += step.times.median
    return spans


def _tracks(report: RunReport) -> dict[str, int]:
    names = dict.fromkeys(step.stream for step in report.program.steps)
    return {name: number for number, name in enumerate(names, start=1)}


def _metadata(report: RunReport) -> list[Event]:
    name = f"{report.program.graph.source.name} on {report.device.name}"
    events: list[Event] = [{"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": name}}]
    for stream, track in _tracks(report).items():
        common: Event = {"ph": "M", "pid": PROCESS, "tid": track}
        events.append(common | {"name": "thread_name", "args": {"name": f"stream {stream}"}})
        events.append(common | {"name": "thread_sort_index", "args": {"sort_index": track}})
    return events


def _steps(report: RunReport) -> list[Event]:
    tracks = _tracks(report)
    free_from = dict.fromkeys(tracks.values(), 0)  # clock jitter: no event starts before its predecessor's end
    events = []
    for index, start, duration in timeline(report):
        step, info = report.program.steps[index], report.steps[index]
        track = tracks[step.stream]
        begin, end = max(start, free_from[track]), max(start + duration, free_from[track])
        free_from[track] = end
        details = {
            "op": info.op,
            "grid": info.grid,
            "block": info.block,
            "shared_bytes": info.shared,
            "flops": info.flops,
            "bytes": info.nbytes,
            "method": info.method,
        }
        events.append(
            {
                "ph": "X",
                "pid": PROCESS,
                "tid": track,
                "name": step.name,
                "cat": info.op,
                "ts": begin / 1000,
                "dur": (end - begin) / 1000,
                "args": {key: value for key, value in details.items() if value is not None},
            }
        )
    return events


def _memory(report: RunReport) -> list[Event]:
    live = live_dynamic_bytes(report.plan, len(report.program.steps))
    spans = sorted(timeline(report), key=lambda span: span[1])
    events = [_counter(start, live[index], report.plan.static_bytes) for index, start, _ in spans]
    if spans:
        end = max(start + duration for _, start, duration in spans)
        events.append(_counter(end, 0, report.plan.static_bytes))
    return events


def _counter(ns: int, dynamic: int, static: int) -> Event:
    args = {"dynamic live": dynamic, "static": static}
    return {"ph": "C", "pid": PROCESS, "name": "memory (bytes)", "ts": ns / 1000, "args": args}


def write_trace(path: Path, report: RunReport) -> None:
    """Write the trace whole, or nothing; UsageError where it cannot be written."""
    from kgrun.cli.output import write_text

    write_text(path, trace_text(report))
