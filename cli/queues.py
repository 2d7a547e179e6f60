"""`--queue`: the data of a graph's queues as the command line names them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgrun.runtime.queues import QueueFeed


def read_queues(words: Iterable[str]) -> dict[str, QueueFeed]:
    """Feeds by queue name. UsageError KG274 for a malformed word, KG276 for a queue given twice."""
    if not words:
        return {}
    from kgrun.runtime.queues.settings import parse_queues

    return parse_queues(words)
