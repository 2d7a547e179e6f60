"""The part of the reports' schema on collectives and ranks; each member with what it means."""

from __future__ import annotations

from kgrun.cli.render.schema_parts import COUNT, STRING, Schema, described, maybe, record, rows

COLLECTIVE = record(
    {
        "name": described(STRING, "the node"),
        "op": STRING,
        "nbytes": described(COUNT, "what the algorithm works on: all ranks' parts together where each has one"),
        "ranks": described(COUNT, "how many take part"),
        "time_ns": described(maybe(COUNT), "median"),
        "algorithm_bytes_per_s": described(maybe(COUNT), "nbytes ÷ median"),
        "bus_bytes_per_s": described(
            maybe(COUNT), "that times how often a byte must cross the slowest link; null of one rank"
        ),
        "exposed_ns": described(
            maybe(COUNT),
            "time in which no other stream worked; of a CUDA graph by whole runs",
        ),
        "hidden_ns": described(maybe(COUNT), "time in which another stream worked"),
    }
)
SPREAD = record(
    {
        "name": STRING,
        "min": described(COUNT, "least median of a rank"),
        "median": COUNT,
        "max": COUNT,
        "slowest": described(COUNT, "the rank with the greatest"),
    }
)
RANK = record(
    {
        "rank": COUNT,
        "host": STRING,
        "device": STRING,
        "total_ns": described(maybe(COUNT), "median of its whole runs"),
        "own_ns": described(maybe(COUNT), "that without the time inside collectives"),
        "measured_peak_bytes": COUNT,
    }
)
RANKS: dict[str, Schema] = {
    "collectives": described(rows(COLLECTIVE), "what each collective moved, and how fast"),
    "ranks": described(
        maybe(
            record(
                {
                    "ranks": described(rows(RANK), "each rank"),
                    "total_ns": described(maybe(SPREAD), "whole runs over the ranks"),
                    "kernels": described(rows(SPREAD), "each step over the ranks"),
                    "straggler": described(maybe(COUNT), "the rank whose own work takes much longer than the others'"),
                }
            )
        ),
        "all ranks of the job; null for one process",
    ),
}
