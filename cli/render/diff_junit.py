"""A comparison as JUnit XML: a test case a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

from kgrun.cli.render.diff import Sides, change_text, name_text, value_text
from kgrun.runtime.diff import Difference, Row, Verdict

# What XML 1.0 allows ("Char", https://www.w3.org/TR/xml/#charsets); nothing escapes the rest.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SKIPPED = (Verdict.added, Verdict.removed, Verdict.incomparable)


def attribute(text: str) -> str:
    """`text` as a quoted attribute; characters that XML 1.0 cannot hold are left out."""
    return quoteattr(_ILLEGAL.sub("", text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def to_junit(sides: Sides, found: Difference) -> str:
    """The XML document: regressions that count are failures, what cannot be compared is skipped."""
    failures = len(found.failures)
    skipped = sum(row.verdict in _SKIPPED for row in found.rows)
    counts = f'tests="{len(found.rows)}" failures="{failures}" errors="0" skipped="{skipped}"'
    name = attribute(f"kgrun diff {sides.file_a} {sides.file_b}")
    cases = "".join(f"    {line}\n" for row in found.rows for line in _case(row))
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites {counts}>\n'
        f"  <testsuite name={name} {counts}>\n{cases}  </testsuite>\n</testsuites>\n"
    )


def _case(row: Row) -> Iterator[str]:
    seconds = f' time="{row.b / 1e9:.9f}"' if row.unit == "ns" and row.b is not None else ""
    start = f"<testcase classname={attribute(f'{row.kind}.{row.metric}')} name={attribute(name_text(row))}{seconds}"
    what = f"{value_text(row, row.a)} → {value_text(row, row.b)} ({change_text(row)})"
    if row.fails:
        yield f"{start}>"
        yield f'  <failure type="regression" message={attribute(what)}/>'
        yield "</testcase>"
    elif row.verdict in _SKIPPED:
        yield f"{start}>"
        yield f"  <skipped message={attribute(row.note or row.verdict.value)}/>"
        yield "</testcase>"
    else:
        yield f"{start}/>"
