"""The schema of what a memory pool says in reports."""

from __future__ import annotations

from kgrun.cli.render.schema_parts import BOOLEAN, COUNT, NUMBER, STRING, Schema, maybe, record, rows

HOLDER = record({"name": STRING, "nbytes": COUNT})
ATTEMPT = record({"way": STRING, "unit_bytes": COUNT, "step": maybe(STRING), "tensor": maybe(STRING), "fits": BOOLEAN})


def _says(schema: Schema, text: str) -> Schema:
    return schema | {"description": text}


POOL = record(
    {
        "unit_bytes": _says(COUNT, "bytes that the pool grows by"),
        "blocks": _says(rows(COUNT), "bytes of each block, up to the end of its highest buffer"),
        "reserved_bytes": _says(COUNT, "bytes of the blocks before they were cut to that"),
        "peak_used_bytes": _says(COUNT, "most bytes in use at once"),
        "peak_step": _says(maybe(COUNT), "the step at which that is reached"),
        "idle_bytes": _says(COUNT, "bytes inside the blocks that nothing uses then"),
        "largest_idle_bytes": _says(COUNT, "the largest piece of them"),
        "fragments": _says(COUNT, "how many pieces they are in"),
        "fragmentation": _says(NUMBER, "share of the idle bytes that lies outside the largest piece"),
        "holders": _says(rows(HOLDER), "largest buffers in use then"),
        "kept": _says(rows(STRING), "buffers in use after the last step"),
        "attempts": _says(rows(ATTEMPT), "dry runs, in order; the last one fits"),
    }
) | {"description": "with --memory pool: what the pool says of the plan"}
