"""Every node against a reference: the table, and its member of the document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.schema_parts import BOOLEAN, COUNT, NUMBER, STRING, Schema, maybe, record, rows
from kgrun.cli.render.table import Table
from kgrun.cli.render.text import figure_text

if TYPE_CHECKING:
    from kgrun.runtime.report import Divergence, NodeDifference

_COLUMNS = (
    "node", "op", "tensor", "result", ">outside tolerance", ">× tolerance", ">max abs", ">max rel", ">max ulp", ">NaN",
    ">NaN wanted",
)  # fmt: skip
_SHOWN = 10  # worst rows, unless all are asked for


def divergence_sections(found: Divergence, verbose: bool) -> Iterator[Table | str]:
    """The first node that differs, and the worst; all of them where that is asked for."""
    first = found.first
    chosen = list(found.nodes) if verbose else sorted(found.nodes, key=_badness, reverse=True)[:_SHOWN]
    if first is not None and first not in chosen:
        chosen.insert(0, first)
    title = f"Nodes against {found.reference}" + ("" if verbose or len(chosen) == len(found.nodes) else ", the worst")
    yield Table(title, _COLUMNS, [_cells(row, first) for row in chosen], rest="tensors")
    same = sum(row.ok for row in found.nodes)
    yield f"  {same:,} of {len(found.nodes):,} tensors agree" + (
        f"; the first that does not: {first.node}" if first else ""
    )


def _badness(row: NodeDifference) -> tuple[bool, float]:
    return not row.ok, inf if row.excess is None and not row.ok else row.excess or 0.0


def _cells(row: NodeDifference, first: NodeDifference | None) -> tuple[str, ...]:
    result = "equal" if row.ok else "DIFFERS FIRST" if row is first else "DIFFERS"
    return (
        row.node, row.op, row.tensor, result, f"{row.mismatched:,} of {row.size:,}", figure_text(row.excess),
        figure_text(row.max_abs), figure_text(row.max_rel), "-" if row.max_ulp is None else f"{row.max_ulp:,}",
        f"{row.nan:,}", f"{row.wanted_nan:,}",
    )  # fmt: skip


def divergence_row(found: Divergence) -> dict[str, Any]:
    """The member `divergence`."""
    nodes = [asdict(row) for row in found.nodes]
    for row in nodes:
        for key in ("excess", "max_abs", "max_rel"):
            row[key] = row[key] if row[key] is not None and isfinite(row[key]) else None
    return {"reference": found.reference, "first": found.first.node if found.first else None, "nodes": nodes}


DIVERGENCE: Schema = record(
    {
        "reference": STRING,
        "first": maybe(STRING),
        "nodes": rows(
            record(
                {
                    "node": STRING, "op": STRING, "tensor": STRING, "ok": BOOLEAN, "mismatched": COUNT, "size": COUNT,
                    "excess": maybe(NUMBER), "max_abs": maybe(NUMBER), "max_rel": maybe(NUMBER),
                    "max_ulp": maybe(COUNT), "nan": COUNT, "wanted_nan": COUNT,
                }
            )
        ),
    }
)  # fmt: skip
