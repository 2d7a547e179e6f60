"""The part of the reports' schema on data queues and embedding caches; each member with what it means."""

from __future__ import annotations

from kgrun.cli.render.schema_parts import BOOLEAN, COUNT, STRING, Schema, described, maybe, record, rows

QUEUE = record(
    {
        "name": STRING,
        "source": described(STRING, "where the data came from"),
        "batches": described(COUNT, "taken by the runs that counted"),
        "nbytes": described(COUNT, "of one batch"),
        "left": described(maybe(COUNT), "batches still to come; null: not known, or no end"),
        "waited_ns": described(COUNT, "what the runs waited for batches, all together"),
        "full_ns": described(COUNT, "what the feeder waited for room"),
        "filled_ns": described(COUNT, "what the feeder copied on the host"),
        "capacity": described(COUNT, "batches held ahead of the run"),
        "pinned": described(maybe(BOOLEAN), "whether batches went through pinned memory; null: nothing is copied"),
    }
)
EMBEDDING = record(
    {
        "ids": described(STRING, "the queue item that is looked up"),
        "tables": described(rows(STRING), "what it looks up in"),
        "rows": described(COUNT, "cached at once, of each table"),
        "vocabulary": described(COUNT, "rows of each table"),
        "batches": COUNT,
        "lookups": described(COUNT, "ids of all batches"),
        "hits": described(COUNT, "ids whose rows were cached"),
        "outside": described(COUNT, "ids that are no rows of the table"),
        "loaded": described(COUNT, "rows brought to the device"),
        "evicted": described(COUNT, "rows turned out of the cache"),
        "written": described(COUNT, "updated ones among them, brought home to the tables"),
        "loaded_bytes": COUNT,
        "written_bytes": COUNT,
        "prepare_ns": described(COUNT, "what the host took to look up and to have rows moved, all together"),
        "lookup_ns": described(COUNT, "what of it the host took to look up"),
        "place_ns": described(COUNT, "what the host took between two runs"),
        "direct": described(BOOLEAN, "whether the device reads and writes the tables itself, in pinned memory"),
        "ahead": described(COUNT, "batches whose rows were on their way while the run before them went on"),
    }
)
FEEDS: dict[str, Schema] = {
    "queues": described(rows(QUEUE), "what each data queue did"),
    "embeddings": described(rows(EMBEDDING), "what each embedding cache did"),
}
