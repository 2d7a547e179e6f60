"""The part of the reports' schema on collectives and ranks; each member with what it means."""

from __future__ import annotations

from kgrun.cli.render.schema_parts import COUNT, STRING, Schema, maybe, record, rows


def _said(schema: Schema, text: str) -> Schema:
    return schema | {"description": text}


COLLECTIVE = record(
    {
        "name": _said(STRING, "the node"),
        "op": STRING,
        "nbytes": _said(COUNT, "what the algorithm works on: all ranks' parts together where each has one"),
        "ranks": _said(COUNT, "how many take part"),
        "time_ns": _said(maybe(COUNT), "median"),
        "algorithm_bytes_per_s": _said(maybe(COUNT), "nbytes ÷ median"),
        "bus_bytes_per_s": _said(
            maybe(COUNT), "that times how often a byte must cross the slowest link; null of one rank"
        ),
        "exposed_ns": _said(
            maybe(COUNT),
            "time in which no other stream worked; of a CUDA graph by whole runs",
        ),
        "hidden_ns": _said(maybe(COUNT), "time in which another stream worked"),
    }
)
SPREAD = record(
    {
        "name": STRING,
        "min": _said(COUNT, "least median of a rank"),
        "median": COUNT,
        "max": COUNT,
        "slowest": _said(COUNT, "the rank with the greatest"),
    }
)
RANK = record(
    {
        "rank": COUNT,
        "host": STRING,
        "device": STRING,
        "total_ns": _said(maybe(COUNT), "median of its whole runs"),
        "own_ns": _said(maybe(COUNT), "that without the time inside collectives"),
        "measured_peak_bytes": COUNT,
    }
)
RANKS: dict[str, Schema] = {
    "collectives": _said(rows(COLLECTIVE), "what each collective moved, and how fast"),
    "ranks": _said(
        maybe(
            record(
                {
                    "ranks": _said(rows(RANK), "each rank"),
                    "total_ns": _said(maybe(SPREAD), "whole runs over the ranks"),
                    "kernels": _said(rows(SPREAD), "each step over the ranks"),
                    "straggler": _said(maybe(COUNT), "the rank whose own work takes much longer than the others'"),
                }
            )
        ),
        "all ranks of the job; null for one process",
    ),
}
