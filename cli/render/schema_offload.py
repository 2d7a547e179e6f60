"""The part of the reports' schema that says what waits on the host and when it moves."""

from __future__ import annotations

from kgrun.cli.render.schema_parts import COUNT, STRING, Schema, maybe, record, rows

TRANSFER_ROW = record(
    {
        "step": COUNT,
        "name": STRING,
        "tensor": STRING,
        "direction": {"enum": ["in", "out"]},
        "nbytes": COUNT,
        "after": maybe(STRING),
        "before": maybe(STRING),
        "start_ns": COUNT,
        "end_ns": COUNT,
    }
)
HOME = record(
    {
        "name": STRING,
        "class": STRING,
        "nbytes": COUNT,
        "host_offset": COUNT,
        "resident": rows(rows(COUNT)),
        "between_runs": {"enum": ["device", "host", None]},
    }
)
BOUNDS = record({"compute_ns": COUNT, "in_ns": COUNT, "out_ns": COUNT, "lp_ns": maybe(COUNT), "lp_note": maybe(STRING)})
OFFLOAD: Schema = maybe(
    record(
        {
            "mode": {"enum": ["auto", "manual", "seeds"]},
            "limit_bytes": maybe(COUNT),
            "host_bytes": COUNT,
            "in_bytes": COUNT,
            "out_bytes": COUNT,
            "dropped_bytes": COUNT,
            "profile": STRING,
            "in_bytes_per_s": COUNT,
            "out_bytes_per_s": COUNT,
            "predicted_ns": COUNT,
            "compute_ns": COUNT,
            "exposed_ns": COUNT,
            "measured_exposed_ns": maybe(COUNT),
            "bounds": maybe(BOUNDS),
            "transfers": rows(TRANSFER_ROW),
            "tensors": rows(HOME),
        }
    )
)
