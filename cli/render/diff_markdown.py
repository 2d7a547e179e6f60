"""A comparison as GitHub-flavoured Markdown, within what a CI summary page takes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from kgrun.cli.render.diff import (
    Sides,
    change_text,
    count_line,
    head_text,
    hint_lines,
    name_text,
    ranked,
    value_text,
    verdict_text,
)
from kgrun.cli.render.text import printable
from kgrun.runtime.diff import Difference, Row

MAX_ROWS = 200
MAX_BYTES = 1 << 20  # GitHub refuses a step's summary beyond 1 MiB ("Job summaries", docs.github.com)
MAX_NAME = 300

_SPECIAL = re.compile(r"([\\`*_\[\]#|~$:@])")


def escaped(text: str) -> str:
    """`text` as it stands, in any place of a Markdown table: no markup, no HTML, no line break, no end of the cell."""
    short = text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…"
    plain = printable(short).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", plain)


def to_markdown(sides: Sides, found: Difference, max_bytes: int = MAX_BYTES) -> str:
    """The summary in at most `max_bytes` bytes of UTF-8: the most telling rows first, and how many were left out."""
    head = _head(sides, found)
    rows = ranked(found.rows)
    tail = _tail(sides, found)
    room = max_bytes - len((head + tail + _cut_line(len(rows), len(rows))).encode())
    if room < 0:
        return f"{_cut_line(len(rows), len(rows))}"[:max_bytes]
    lines: list[str] = []
    for row in rows[:MAX_ROWS]:
        line = _row(row)
        room -= len(line.encode())
        if room < 0:
            break
        lines.append(line)
    cut = len(rows) - len(lines)
    return head + "".join(lines) + (_cut_line(cut, len(rows)) if cut else "") + tail


def write_markdown(path: Path, sides: Sides, found: Difference) -> None:
    """Write the summary to `path`; the file that GitHub names as the step's summary is added to, not replaced."""
    from kgrun.cli.output import write_text

    before = ""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and path.is_file() and path.samefile(summary):
        before = path.read_text(encoding="utf-8", errors="replace")
        before += "\n" if before and not before.endswith("\n") else ""
    write_text(path, before + to_markdown(sides, found, max(MAX_BYTES - len(before.encode()), 0)))


def _head(sides: Sides, found: Difference) -> str:
    state = "regressed" if found.failures else "no regression"
    warnings = "".join(f"> {escaped(warning.message)}\n" for warning in found.warnings[:20])
    return (
        f"### kgrun diff: {state}\n\nCompared: {escaped(head_text(sides))}\n\n{escaped(count_line(found))}\n\n"
        + (f"{warnings}\n" if warnings else "")
        + "| verdict | name | metric | A | B | change | note |\n| --- | --- | --- | ---: | ---: | ---: | --- |\n"
    )


def _row(row: Row) -> str:
    verdict = f"**{verdict_text(row)}**" if row.fails else verdict_text(row)
    cells = (
        verdict,
        escaped(name_text(row)),
        escaped(row.metric),
        value_text(row, row.a),
        value_text(row, row.b),
        change_text(row),
        escaped(row.note or ""),
    )
    return f"| {' | '.join(cells)} |\n"


def _cut_line(cut: int, total: int) -> str:
    return f"\n{cut:,} of {total:,} rows are not shown; `--json` and `--csv` have all of them.\n"


def _tail(sides: Sides, found: Difference) -> str:
    return "".join(_tail_lines(sides, found))


def _tail_lines(sides: Sides, found: Difference) -> Iterator[str]:
    if found.outputs:
        yield "\n"
        for each in found.outputs[:20]:
            yield f"- output {escaped(each.name)}: {escaped(each.what)}\n"
        if len(found.outputs) > 20:
            yield f"- and {len(found.outputs) - 20:,} more outputs\n"
    for hint in hint_lines(sides, found):
        yield f"\n{hint}\n"
