"""The part of the reports' schema on data queues and embedding caches; each member with what it means."""

from __future__ import annotations

from kgrun.cli.render.schema_parts import BOOLEAN, COUNT, STRING, Schema, maybe, record, rows


def _said(schema: Schema, text: str) -> Schema:
    return schema | {"description": text}


QUEUE = record(
    {
        "name": STRING,
        "source": _said(STRING, "where the data came from"),
        "batches": _said(COUNT, "taken by the runs that counted"),
        "nbytes": _said(COUNT, "of one batch"),
        "left": _said(maybe(COUNT), "batches still to come; null: not known, or no end"),
        "waited_ns": _said(COUNT, "what the runs waited for batches, all together"),
        "full_ns": _said(COUNT, "what the feeder waited for room"),
        "filled_ns": _said(COUNT, "what the feeder copied on the host"),
        "capacity": _said(COUNT, "batches held ahead of the run"),
        "pinned": _said(maybe(BOOLEAN), "whether batches went through pinned memory; null: nothing is copied"),
    }
)
EMBEDDING = record(
    {
        "ids": _said(STRING, "the queue item that is looked up"),
        "tables": _said(rows(STRING), "what it looks up in"),
        "rows": _said(COUNT, "cached at once, of each table"),
        "vocabulary": _said(COUNT, "rows of each table"),
        "batches": COUNT,
        "lookups": _said(COUNT, "ids of all batches"),
        "hits": _said(COUNT, "ids whose rows were cached"),
        "outside": _said(COUNT, "ids that are no rows of the table"),
        "loaded": _said(COUNT, "rows brought to the device"),
        "evicted": _said(COUNT, "rows turned out of the cache"),
        "written": _said(COUNT, "updated ones among them, brought home to the tables"),
        "loaded_bytes": COUNT,
        "written_bytes": COUNT,
        "prepare_ns": _said(COUNT, "what the host took to look up and to have rows moved, all together"),
        "lookup_ns": _said(COUNT, "what of it the host took to look up"),
        "place_ns": _said(COUNT, "what the host took between two runs"),
        "direct": _said(BOOLEAN, "whether the device reads and writes the tables itself, in pinned memory"),
        "ahead": _said(COUNT, "batches whose rows were on their way while the run before them went on"),
    }
)
FEEDS: dict[str, Schema] = {
    "queues": _said(rows(QUEUE), "what each data queue did"),
    "embeddings": _said(rows(EMBEDDING), "what each embedding cache did"),
}
