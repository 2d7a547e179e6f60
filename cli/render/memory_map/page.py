"""The memory map as one self-contained HTML page: markup, style and script from beside this file, data as JSON."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from kgrun.cli.render.memory_map.data import CLASSES, MemoryMap, live_at
from kgrun.cli.render.memory_map.palette import DARK, LIGHT
from kgrun.cli.render.text import bytes_text, count_text, percent

SCRIPTS = ("view.js", "map.js", "curve.js", "panel.js", "start.js")
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")


def html_page(picture: MemoryMap) -> str:
    """The page. It loads nothing: its policy forbids every request, and it works from a file."""
    folder = Path(__file__).parent
    script = "\n".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    parts = {
        "title": _text(picture.title),
        "summary": "".join(f"<li>{_text(line)}</li>" for line in summary(picture)),
        "style": (folder / "page.css").read_text(encoding="utf-8"),
        "data": _json(page_data(picture)),
        "timeline": picture.timeline,
        "script": script,
    }
    page = (folder / "page.html").read_text(encoding="utf-8")
    # Split once, so that a name that looks like a mark is not replaced.
    pieces = page.split("%%")
    return "".join(piece if i % 2 == 0 else parts[piece] for i, piece in enumerate(pieces))


def summary(picture: MemoryMap) -> list[str]:
    """The picture in a few lines, readable without the script."""
    lines = [f"arena {bytes_text(picture.height)}"]
    if picture.optimal:
        lines.append("proven to be the least possible")
    elif picture.lower_bound:
        over = percent(picture.height - picture.lower_bound, picture.lower_bound)
        lines.append(f"{over} % above the lower bound {bytes_text(picture.lower_bound)}")
    if picture.static_bytes:
        lines.append(f"static {bytes_text(picture.static_bytes)}")
    if picture.peak is not None:
        name = f" {picture.steps[picture.peak]}" if picture.peak < len(picture.steps) else ""
        lines.append(f"peak at {picture.unit} {picture.peak:,}{name}: {bytes_text(picture.peak_live)} live")
    lines.append(count_text(len(picture.items), "buffer"))
    if picture.steps:
        lines.append(count_text(len(picture.steps), "step"))
    lines += [f"{key} {value}" for key, value in picture.facts.items()]
    lines.append(f"planner {picture.planner}")
    return lines


def page_data(picture: MemoryMap) -> dict[str, object]:
    """Columns, one entry an item, and rectangles (`ri`: item, `r0`, `r1`: half-open life); what the script reads."""
    items = picture.items
    rectangles = [(i, low, high) for i, item in enumerate(items) for low, high in item.spans if high > low]
    return {
        "title": _whole(picture.title), "unit": picture.unit, "start": picture.start, "end": picture.end,
        "height": picture.height, "static": picture.static_bytes, "bound": picture.lower_bound,
        "optimal": picture.optimal, "peak": picture.peak,
        "peakLive": 0 if picture.peak is None else live_at(picture.live, picture.peak),
        "classes": CLASSES, "light": LIGHT, "dark": DARK, "steps": [_whole(name) for name in picture.steps],
        "names": [_whole(item.name) for item in items],
        "k": [CLASSES.index(item.group) for item in items],
        "s": [int(item.static) for item in items],
        "o": [item.offset for item in items],
        "n": [item.nbytes for item in items],
        "h": [item.held for item in items],
        "ri": [r[0] for r in rectangles], "r0": [r[1] for r in rectangles], "r1": [r[2] for r in rectangles],
        "lt": [time for time, _ in picture.live], "lb": [nbytes for _, nbytes in picture.live],
        "members": {str(i): [_whole(m) for m in item.members] for i, item in enumerate(items) if item.members},
        "notes": {str(i): [_whole(n) for n in item.notes] for i, item in enumerate(items) if item.notes},
    }  # fmt: skip


def _json(data: object) -> str:
    """JSON that no HTML parser reads as markup: `</script>` and `<!--` cannot occur in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(text: str) -> str:
    return escape(_whole(text).replace("\0", "\N{REPLACEMENT CHARACTER}"))


def _whole(text: str) -> str:
    """Text that has a UTF-8 form: half of a surrogate pair has none, and no browser hands it on."""
    return text if text.isascii() else text.translate(_SURROGATES)
