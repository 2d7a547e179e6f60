"""Steps and transfers over predicted time, as three lanes of an SVG: what runs beside what, and where steps wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from kgrun.cli.render.text import bytes_text, time_text
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    from kgrun.runtime.memory.offload.records import Offload
    from kgrun.runtime.program import Program

_WIDTH, _LANE, _LEFT = 1000.0, 16.0, 70.0
_COLOURS = {"steps": "#4a86c5", "in": "#1b7f79", "out": "#d9822b"}
_MOST = 4_000  # bars a lane; more are joined to what they touch


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that runs from `start` to `end`, in nanoseconds."""

    start: float
    end: float
    text: str


def timeline(program: Program) -> str:
    """The markup; empty where nothing moves."""
    found = program.offload
    if found is None or not found.predicted_ns:
        return ""
    lanes = {"steps": _step_bars(program, found), "in": _copy_bars(found, "in"), "out": _copy_bars(found, "out")}
    scale = (_WIDTH - _LEFT) / max(found.predicted_ns, 1)
    height = len(lanes) * (_LANE + 4) + 18
    exposed = f"{time_text(found.exposed_ns)} exposed of {time_text(found.predicted_ns)}"
    parts = [
        f'<section id="transfers"><svg viewBox="0 0 {_WIDTH:g} {height:g}" width="100%" role="img" '
        f'aria-label="Steps and transfers over predicted time: {exposed}">'
    ]
    for row, (name, bars) in enumerate(lanes.items()):
        top = row * (_LANE + 4)
        parts.append(f'<text x="0" y="{top + 12:g}" font-size="11" fill="currentColor">{name}</text>')
        parts += _rectangles(bars, top, scale, _COLOURS[name])
    parts.append(
        f'<text x="{_LEFT:g}" y="{height - 4:g}" font-size="11" fill="currentColor">0</text>'
        f'<text x="{_WIDTH:g}" y="{height - 4:g}" font-size="11" text-anchor="end" fill="currentColor">'
        f"{escape(exposed)}, predicted</text></svg></section>"
    )
    return "".join(parts)


def _step_bars(program: Program, found: Offload) -> list[Bar]:
    moves = {row.step for row in found.transfers}
    steps = [step for step in program.steps if step.index not in moves]
    return [
        Bar(start, start + ns, step.name)
        for step, start, ns in zip(steps, found.starts_ns, found.steps_ns, strict=False)
        if ns
    ]


def _copy_bars(found: Offload, direction: str) -> list[Bar]:
    return [
        Bar(row.start_ns, row.end_ns, f"{row.name}: {bytes_text(row.nbytes)}, for {row.before or 'the end'}")
        for row in found.transfers
        if row.direction == direction
    ]


def _rectangles(bars: Sequence[Bar], top: float, scale: float, colour: str) -> Iterator[str]:
    for bar in _joined(bars, 1.0 / scale) if len(bars) > _MOST else bars:
        x, wide = _LEFT + bar.start * scale, max((bar.end - bar.start) * scale, 0.2)
        text = f"{bar.text}\n{time_text(round(bar.start))} to {time_text(round(bar.end))}"
        shape = f'x="{x:.2f}" y="{top:g}" width="{wide:.2f}" height="{_LANE:g}"'
        yield f'<rect {shape} fill="{colour}" stroke="none"><title>{escape(_plain(text))}</title></rect>'


def _joined(bars: Sequence[Bar], nearest: float) -> list[Bar]:
    """Bars with those joined that are less than `nearest` apart."""
    found: list[Bar] = []
    for bar in bars:
        if found and bar.start - found[-1].end < nearest:
            found[-1] = Bar(found[-1].start, bar.end, f"{found[-1].text.partition(' … ')[0]} … {bar.text}")
        else:
            found.append(bar)
    return found


def _plain(text: str) -> str:
    """Text that HTML can hold."""
    return "".join(c if c == "\n" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
