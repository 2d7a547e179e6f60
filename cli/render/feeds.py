"""What data queues and embedding caches did during a run, as lines and as members of the JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.text import percent, time_text

if TYPE_CHECKING:
    from kgrun.runtime.report import RunReport

Row = dict[str, Any]


def feed_lines(report: RunReport) -> Iterator[str]:
    """A line a queue, two an embedding cache."""
    for queue in report.queues:
        left = "" if queue.left is None else f", {queue.left:,} left"
        pageable = "; not pinned: the host would pin no more" if queue.pinned is False else ""
        taken = f"{queue.batches:,} batches of {queue.nbytes:,} bytes from {queue.source}{left}"
        yield f"  queue        {queue.name}: {taken}; runs waited {time_text(queue.waited_ns)} for them{pageable}"
    for cache in report.embeddings:
        share = percent(cache.hits, cache.lookups)
        outside = f", {cache.outside:,} outside the table" if cache.outside else ""
        rows = f"{cache.rows:,} of {cache.vocabulary:,} rows"
        yield (
            f"  embedding    {', '.join(cache.tables)} by {cache.ids}, {rows} cached: {cache.lookups:,} lookups, "
            f"{share} % hits{outside}"
        )
        moved = f"{cache.loaded:,} rows in ({cache.loaded_bytes:,} bytes), {cache.evicted:,} evicted"
        yield (
            f"               {moved}, {cache.written:,} written home ({cache.written_bytes:,} bytes); "
            f"prepared in {time_text(cache.prepare_ns)}, {cache.ahead:,} of {cache.batches:,} ahead"
        )


def feed_members(report: RunReport) -> Row:
    """The members `queues` and `embeddings`."""
    from kgrun.cli.render.documents import members

    return {
        "queues": [members(queue) for queue in report.queues],
        "embeddings": [members(cache) | {"tables": list(cache.tables)} for cache in report.embeddings],
    }
