"""The neutral interchange of packing problems and plans: minimalloc's CSV."""

from __future__ import annotations

import csv
import gzip
import io
from array import array
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from .normalise import merged
from .problem import Problem, ProblemError

REQUIRED = ("id", "lower", "upper", "size")
OPTIONAL = ("alignment", "offset", "hint", "gaps", "space")


class CsvError(ProblemError):
    """A CSV file that is no packing problem; the message begins with the line."""


def read_minimalloc_csv(source: str | Path) -> Problem:
    """The problem in a CSV file (a path, `.gz` too, or the text itself, recognised by its line breaks).

    Columns `id,lower,upper,size` in any order, lives half-open; optional `alignment`, `offset` (a fixed one), `hint`,
    `gaps` ("lower-upper" pairs separated by blanks, during which the buffer is not live) and `space` (a number).
    Empty cells mean the default. Raises CsvError, with the line number, and OSError.
    """
    lines = _lines(source)
    rows = csv.reader(lines)
    header = [name.strip().lower() for name in next(rows, [])]
    _check_header(header)
    table: dict[str, list[int | None]] = {name: [] for name in (*REQUIRED[1:], *OPTIONAL)}
    ids: list[str] = []
    gaps: list[list[tuple[int, int]]] = []
    seen: dict[str, int] = {}
    for row in rows:
        line = rows.line_num
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            raise CsvError(f"line {line}: {len(row)} cells, the header has {len(header)}")
        cells = dict(zip(header, (cell.strip() for cell in row), strict=True))
        name = cells["id"]
        if seen.setdefault(name, line) != line:
            raise CsvError(f"line {line}: id {name!r} was used on line {seen[name]} already")
        ids.append(name)
        gaps.append(_gaps(cells.get("gaps", ""), line))
        for key in table:
            if key != "gaps":
                table[key].append(_number(cells.get(key, ""), key, line))
        _check_row(table, line)
    return _problem(ids, table, gaps)


def write_minimalloc_csv(problem: Problem, offsets: Sequence[int] | None = None) -> str:
    """The problem as CSV text, with the offsets of a plan (or, without one, the fixed offsets) where there are any."""
    p = problem
    shown = dict(enumerate(offsets)) if offsets is not None else dict(p.fixed)
    columns: dict[str, list[object]] = {
        "id": [p.name(i) for i in range(len(p))],
        "lower": list(p.lowers), "upper": list(p.uppers), "size": list(p.sizes),
    }  # fmt: skip
    if p.alignment != 1:
        columns["alignment"] = [p.align(i) for i in range(len(p))]
    if shown:
        columns["offset"] = [shown.get(i, "") for i in range(len(p))]
    if p.hint:
        columns["hint"] = [p.hint.get(i, "") for i in range(len(p))]
    if p.extra_intervals:
        lives = [merged([(p.lowers[i], p.uppers[i]), *p.extra_intervals.get(i, ())]) for i in range(len(p))]
        for i, spans in enumerate(lives):
            if spans:
                columns["lower"][i], columns["upper"][i] = spans[0][0], spans[-1][1]
        columns["gaps"] = [" ".join(f"{a[1]}-{b[0]}" for a, b in pairwise(s)) for s in lives]
    if p.spaces is not None:
        columns["space"] = list(p.spaces)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


def _lines(source: str | Path) -> list[str]:
    if isinstance(source, str) and "\n" in source:
        return source.splitlines()
    data = Path(source).read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    try:
        return data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise CsvError(f"line {line}: not UTF-8 text") from None


def _check_header(header: list[str]) -> None:
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise CsvError(f"line 1: no column {', '.join(missing)}; a header with {','.join(REQUIRED)} is needed")
    unknown = [name for name in header if name not in (*REQUIRED, *OPTIONAL)]
    if unknown:
        raise CsvError(f"line 1: unknown column {', '.join(unknown)}; known are {', '.join((*REQUIRED, *OPTIONAL))}")
    if len(set(header)) != len(header):
        raise CsvError("line 1: a column stands there twice")


def _number(text: str, name: str, line: int) -> int | None:
    if not text:
        if name in REQUIRED:
            raise CsvError(f"line {line}: {name} is empty")
        return None
    try:
        value = int(text)
    except ValueError:
        raise CsvError(f"line {line}: {name} is no whole number: {text!r}") from None
    if abs(value) >= 1 << 60:
        raise CsvError(f"line {line}: {name} is out of range: {text}")
    return value


def _gaps(text: str, line: int) -> list[tuple[int, int]]:
    found = []
    for part in text.split():
        low, dash, high = part.partition("-")
        if not dash or not low.isdigit() or not high.isdigit() or int(low) > int(high):
            raise CsvError(f"line {line}: a gap reads LOWER-UPPER, not {part!r}")
        found.append((int(low), int(high)))
    return sorted(found)


def _check_row(table: dict[str, list[int | None]], line: int) -> None:
    low, high, size = (table[name][-1] for name in ("lower", "upper", "size"))
    assert low is not None
    assert high is not None
    assert size is not None
    if low > high:
        raise CsvError(f"line {line}: upper {high} is below lower {low}")
    if size < 0:
        raise CsvError(f"line {line}: size {size} is negative")
    align, offset = table["alignment"][-1], table["offset"][-1]
    if align is not None and align < 1:
        raise CsvError(f"line {line}: alignment {align} is below 1")
    if offset is not None and (offset < 0 or offset % (align or 1)):
        raise CsvError(f"line {line}: offset {offset} is negative or no multiple of the alignment")


def _problem(ids: list[str], table: dict[str, list[int | None]], gaps: list[list[tuple[int, int]]]) -> Problem:
    def present(name: str) -> dict[int, int]:
        return {i: v for i, v in enumerate(table[name]) if v is not None}

    def filled(name: str, default: int) -> array[int]:
        return array("q", [default if v is None else v for v in table[name]])

    lower, upper = filled("lower", 0), filled("upper", 0)
    extra: dict[int, list[tuple[int, int]]] = {}
    for i, holes in enumerate(gaps):
        if holes:
            spans = _without(lower[i], upper[i], holes)
            lower[i], upper[i] = spans[0]
            extra[i] = spans[1:]
    aligns = set(present("alignment").values())
    uniform = len(aligns) <= 1 and len(present("alignment")) in (0, len(ids))
    return Problem(
        lower, upper, filled("size", 0), ids,
        alignment=(aligns.pop() if aligns else 1) if uniform else filled("alignment", 1),
        extra_intervals=extra, fixed=present("offset"), hint=present("hint"),
        space=filled("space", 0) if present("space") else None,
    )  # fmt: skip


def _without(low: int, high: int, holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    spans, at = [], low
    for a, b in holes:
        spans.append((at, max(at, min(a, high))))
        at = max(at, min(b, high))
    return merged([*spans, (at, high)]) or [(low, low)]
