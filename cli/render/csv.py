"""CSV text of rows of plain values; a column for each key of the first row."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Header and rows, comma separated, LF line ends; None is an empty cell, a tuple or list is joined by "x"."""
    target = io.StringIO()
    if rows:
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(rows[0])
        writer.writerows([_cell(row.get(key)) for key in rows[0]] for row in rows)
    return target.getvalue()


def _cell(value: Any) -> Any:
    return "x".join(map(str, value)) if isinstance(value, (tuple, list)) else value
