"""A memory map as SVG for documents: the largest buffers one by one with tooltips, the rest as shading, and says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from xml.sax.saxutils import escape

from kgrun.cli.render.memory_map.coverage import axis_ticks, coverage
from kgrun.cli.render.memory_map.data import CLASSES, Item, MemoryMap
from kgrun.cli.render.memory_map.palette import DARK, LIGHT
from kgrun.cli.render.text import bytes_text, count_text, percent
from kgrun.graphs.records import dataclass

LIMIT = 2000  # buffers drawn one by one
_CELLS = (320, 160)  # of the shading
_LEFT, _RIGHT, _TOP, _BAND, _CURVE, _GAP, _BOTTOM = 94, 20, 74, 26, 84, 14, 58
# What XML 1.0 cannot hold at all, even escaped: most control characters, surrogates, two noncharacters.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where the arena lies on the page, in SVG units."""

    picture: MemoryMap
    left: float
    top: float
    width: float
    height: float

    def x(self, time: float) -> float:
        return self.left + (time - self.picture.start) / (self.picture.end - self.picture.start) * self.width

    def y(self, offset: float) -> float:
        return self.top + self.height - offset / max(self.picture.height, 1) * self.height


def svg_map(picture: MemoryMap, *, width: int = 960, height: int = 560, limit: int = LIMIT) -> str:
    """The picture as one SVG document of `width` by `height` units, at most `limit` buffers drawn one by one."""
    band = _BAND if picture.static_bytes else 0
    room = height - _TOP - band - _CURVE - _GAP - _BOTTOM
    frame = _Frame(picture, _LEFT, _TOP + band, width - _LEFT - _RIGHT, max(room, 40))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{_attribute(f"Memory map of {picture.title}")}">',
        _style(),
        f'<rect class="ground" width="{width}" height="{height}"/>',
        *_head(picture, width),
        *_static_band(picture, frame),
        *_arena(picture, frame, limit),
        *_curve(picture, frame),
        *_legend(picture, height, limit),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _style() -> str:
    def classes(colours: Sequence[str]) -> str:
        return "".join(f".k{i}{{fill:{colour}}}" for i, colour in enumerate(colours))

    light = (
        ".ground{fill:#fff}.plot{fill:#f3f4f6}.ink{fill:#1f2328}.soft{fill:#59636e}.grid{stroke:#d8dde3}"
        ".item{stroke:#fff;stroke-opacity:.7}.shade{fill:#4a86c5}.live{fill:#4a86c5;fill-opacity:.25;stroke:#2f6aa8}"
        ".bound{stroke:#1b7f3b}.height{stroke:#59636e}.peak{stroke:#cf222e}.peaktext{fill:#cf222e}"
    )
    dark = (
        ".ground{fill:#0f1318}.plot{fill:#181d24}.ink{fill:#e6edf3}.soft{fill:#9aa5b1}.grid{stroke:#2b323b}"
        ".item{stroke:#0f1318}.shade{fill:#5b9bdd}.live{fill:#5b9bdd;stroke:#7db4ec}.bound{stroke:#56c271}"
        ".height{stroke:#9aa5b1}.peak{stroke:#ff7b72}.peaktext{fill:#ff7b72}"
    )
    return (
        "<style>text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif;font-size:12px}"
        "line,path{vector-effect:non-scaling-stroke}.item{stroke-width:.6}.grid,.height{stroke-width:1}"
        ".bound,.peak{stroke-width:1.5;stroke-dasharray:5 3;fill:none}.live{stroke-width:1.2}"
        f"{light}{classes(LIGHT)}@media (prefers-color-scheme:dark){{{dark}{classes(DARK)}}}</style>"
    )


def _head(picture: MemoryMap, width: int) -> Iterator[str]:
    room = max((width - _LEFT) // 10, 8)
    title = picture.title if len(picture.title) <= room else picture.title[: room - 1] + "…"
    bound = picture.lower_bound
    height = f"arena {bytes_text(picture.height)}"
    if picture.optimal:
        height += ", proven to be the least possible"
    elif bound:
        height += f", {percent(picture.height - bound, bound)} % above the lower bound {bytes_text(bound)}"
    static = f" · static {bytes_text(picture.static_bytes)}" if picture.static_bytes else ""
    yield f'<text class="ink" x="16" y="26" style="font-size:16px;font-weight:600">{_text(title)}</text>'
    yield f'<text class="soft" x="16" y="46">{_text(height + static)} · planner {_text(picture.planner)}</text>'


def _static_band(picture: MemoryMap, frame: _Frame) -> Iterator[str]:
    if not picture.static_bytes:
        return
    static = [item for item in picture.items if item.static]
    top = frame.top - _BAND
    x = frame.left
    for k, name in enumerate(CLASSES):
        held = sum(item.held for item in static if item.group == name)
        if held:
            wide = held / picture.static_bytes * frame.width
            count = sum(item.group == name for item in static)
            text = f"static {name}: {bytes_text(held)} in {count_text(count, 'buffer')}, for the whole run"
            yield f'<rect class="k{k}" x="{x:.2f}" y="{top:.2f}" width="{wide:.2f}" height="12">{_title(text)}</rect>'
            x += wide
    yield f'<text class="soft" x="{frame.left - 8}" y="{top + 10}" text-anchor="end">static</text>'


def _arena(picture: MemoryMap, frame: _Frame, limit: int) -> Iterator[str]:
    yield f'<rect class="plot" x="{frame.left}" y="{frame.top}" width="{frame.width}" height="{frame.height}"/>'
    yield from _axes(picture, frame)
    area = [(item.held * (high - low), item, (low, high)) for item in picture.dynamic for low, high in item.spans]
    area.sort(key=lambda each: -each[0])
    if len(area) > limit:
        yield from _shading([item for _, item, _ in area[limit:]], picture, frame)
    for _, item, (low, high) in area[:limit]:
        if high > low and item.held:
            yield _rectangle(item, low, high, picture, frame)
    if not area:
        x, y = frame.left + frame.width / 2, frame.top + frame.height / 2
        yield f'<text class="soft" x="{x}" y="{y}" text-anchor="middle">no dynamic memory</text>'


def _rectangle(item: Item, low: int, high: int, picture: MemoryMap, frame: _Frame) -> str:
    x, y = frame.x(low), frame.y(item.offset + item.held)
    wide, tall = frame.x(high) - x, frame.y(item.offset) - y
    life = f"{picture.unit} {low}" if high == low + 1 else f"{picture.unit}s {low} to {high - 1}"
    if picture.unit != "step":
        life = f"time [{low}, {high})"
    text = f"{item.name}\n{item.group}, {item.nbytes:,} bytes at offset {item.offset:,}\n{life}"
    label = ""
    if wide > 40 and tall > 13:
        room = int(wide / 7)
        short = item.name if len(item.name) <= room else item.name[: room - 1] + "…"
        label = (
            f'<text x="{x + wide / 2:.2f}" y="{y + tall / 2 + 4:.2f}" text-anchor="middle" fill="#fff" '
            f'pointer-events="none" style="font-size:11px">{_text(short)}</text>'
        )
    shape = f'x="{x:.2f}" y="{y:.2f}" width="{max(wide, 0.3):.2f}" height="{max(tall, 0.3):.2f}"'
    line = "item " if wide > 3 and tall > 3 else ""
    return f'<rect class="{line}k{CLASSES.index(item.group)}" {shape}>{_title(text)}</rect>{label}'


def _shading(rest: Sequence[Item], picture: MemoryMap, frame: _Frame) -> Iterator[str]:
    columns, rows = _CELLS
    grid = coverage(dict.fromkeys(rest), picture.start, picture.end, picture.height, columns, rows)
    wide, tall = frame.width / columns, frame.height / rows
    for row, values in enumerate(grid):
        y = frame.top + frame.height - (row + 1) * tall
        start, level = 0, 0
        for column, value in enumerate([*values, 0.0]):
            now = round(value * 5) if column < columns else -1
            if now != level:
                if level > 0:
                    x, run = frame.left + start * wide, (column - start) * wide
                    shape = f'x="{x:.2f}" y="{y:.2f}" width="{run:.2f}" height="{tall:.2f}"'
                    yield f'<rect class="shade" {shape} fill-opacity="{level * 0.17:.2f}"/>'
                start, level = column, now


def _axes(picture: MemoryMap, frame: _Frame) -> Iterator[str]:
    for offset in axis_ticks(0, picture.height, 6, binary=True):
        y = frame.y(offset)
        yield f'<line class="grid" x1="{frame.left}" x2="{frame.left + frame.width}" y1="{y:.2f}" y2="{y:.2f}"/>'
        yield f'<text class="soft" x="{frame.left - 8}" y="{y + 4:.2f}" text-anchor="end">{bytes_text(offset)}</text>'
    base = frame.top + frame.height + _GAP + _CURVE
    for time in axis_ticks(picture.start, picture.end, 10):
        x = frame.x(time)
        yield f'<line class="grid" x1="{x:.2f}" x2="{x:.2f}" y1="{frame.top}" y2="{base}"/>'
        yield f'<text class="soft" x="{x:.2f}" y="{base + 15}" text-anchor="middle">{time:,}</text>'
    yield f'<text class="soft" x="{frame.left - 8}" y="{base + 15}" text-anchor="end">{picture.unit}</text>'


def _curve(picture: MemoryMap, frame: _Frame) -> Iterator[str]:
    top = frame.top + frame.height + _GAP
    scale = (_CURVE - 4) / max(picture.height, picture.peak_live, picture.lower_bound or 0, 1)

    def y(nbytes: float) -> float:
        return top + _CURVE - nbytes * scale

    points = _thinned(picture, frame)
    path = f"M{frame.left:.1f},{y(0):.1f}" + "".join(f"H{x:.1f}V{y(nbytes):.1f}" for x, nbytes in points)
    path += f"H{frame.left + frame.width:.1f}V{y(0):.1f}Z"
    yield f'<path class="live" d="{path}">{_title("live bytes over time")}</path>'
    lines = [("height", picture.height, "arena")]
    if picture.lower_bound is not None:
        lines.append(("bound", picture.lower_bound, "lower bound"))
    for name, nbytes, text in lines:
        yield (
            f'<line class="{name}" x1="{frame.left}" x2="{frame.left + frame.width}" y1="{y(nbytes):.1f}" '
            f'y2="{y(nbytes):.1f}">{_title(f"{text}: {bytes_text(nbytes)}")}</line>'
        )
    yield from _curve_labels(picture, frame.left - 8, top + _CURVE / 2, y)
    if picture.peak is not None:
        x = frame.x(picture.peak + 0.5) if picture.unit == "step" else frame.x(picture.peak)
        yield f'<line class="peak" x1="{x:.2f}" x2="{x:.2f}" y1="{frame.top}" y2="{top + _CURVE}"/>'
        anchor, shift = ("end", -5) if x > frame.left + frame.width * 0.6 else ("start", 5)
        name = f" {picture.steps[picture.peak]}" if picture.peak < len(picture.steps) else f" {picture.peak}"
        text = f"peak at {picture.unit}{name}: {bytes_text(picture.peak_live)} live"
        spot = f'x="{x + shift:.2f}" y="{_TOP - 7}" text-anchor="{anchor}"'
        yield f'<text class="peaktext" {spot}>{_text(text)}</text>'


def _curve_labels(picture: MemoryMap, x: float, middle: float, y: Callable[[float], float]) -> Iterator[str]:
    labels = [("soft", middle + 8, "live bytes")]
    bound = picture.lower_bound
    if bound is not None and (bound == picture.height or y(bound) - y(picture.height) < 12):
        text = "arena = bound" if bound == picture.height else "lower bound"
        labels.append(("soft", y(bound) + 4, text))
    else:
        labels.append(("soft", y(picture.height) + 4, "arena"))
        labels += [] if bound is None else [("soft", y(bound) + 4, "lower bound")]
    for style, at, text in labels if picture.height else labels[:1]:
        yield f'<text class="{style}" x="{x}" y="{at:.1f}" text-anchor="end" style="font-size:11px">{text}</text>'


def _thinned(picture: MemoryMap, frame: _Frame) -> list[tuple[float, int]]:
    """The curve with at most two points a unit of width: where it changes, and the highest value in between."""
    points: list[tuple[float, int]] = []
    for time, nbytes in picture.live:
        x = frame.x(time)
        if len(points) > 1 and x - points[-2][0] < 0.5:
            points[-2] = (points[-2][0], max(points[-2][1], points[-1][1]))
            points[-1] = (points[-1][0], nbytes)
        else:
            points.append((x, nbytes))
    return points


def _legend(picture: MemoryMap, height: int, limit: int) -> Iterator[str]:
    x, y = float(_LEFT), height - 16
    for k, name in enumerate(CLASSES):
        count = sum(item.group == name for item in picture.items)
        if count:
            text = f"{name} ({count:,})"
            yield f'<rect class="k{k}" x="{x:.1f}" y="{y - 9}" width="10" height="10" rx="2"/>'
            yield f'<text class="ink" x="{x + 15:.1f}" y="{y}">{text}</text>'
            x += 24 + 7 * len(text)
    total = sum(len(item.spans) for item in picture.dynamic)
    if total > limit:
        text = f"the {limit:,} largest of {total:,} are drawn one by one, the others as shading"
        yield f'<text class="soft" x="{x + 8:.1f}" y="{y}">{text}</text>'


def _title(text: str) -> str:
    return f"<title>{_text(text)}</title>"


def _text(text: str) -> str:
    return escape(_ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text))


def _attribute(text: str) -> str:
    return escape(_ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text), {'"': "&quot;"})
