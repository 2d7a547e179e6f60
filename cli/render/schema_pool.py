"""The schema of what a memory pool says in reports."""

from __future__ import annotations

from kgrun.cli.render.schema_parts import BOOLEAN, COUNT, NUMBER, STRING, described, maybe, record, rows

HOLDER = record({"name": STRING, "nbytes": COUNT})
ATTEMPT = record({"way": STRING, "unit_bytes": COUNT, "step": maybe(STRING), "tensor": maybe(STRING), "fits": BOOLEAN})


POOL = record(
    {
        "unit_bytes": described(COUNT, "bytes that the pool grows by"),
        "blocks": described(rows(COUNT), "bytes of each block, up to the end of its highest buffer"),
        "reserved_bytes": described(COUNT, "bytes of the blocks before they were cut to that"),
        "peak_used_bytes": described(COUNT, "most bytes in use at once"),
        "peak_step": described(maybe(COUNT), "the step at which that is reached"),
        "idle_bytes": described(COUNT, "bytes inside the blocks that nothing uses then"),
        "largest_idle_bytes": described(COUNT, "the largest piece of them"),
        "fragments": described(COUNT, "how many pieces they are in"),
        "fragmentation": described(NUMBER, "share of the idle bytes that lies outside the largest piece"),
        "holders": described(rows(HOLDER), "largest buffers in use then"),
        "kept": described(rows(STRING), "buffers in use after the last step"),
        "attempts": described(rows(ATTEMPT), "dry runs, in order; the last one fits"),
    }
) | {"description": "with --memory pool: what the pool says of the plan"}
