"""Where the time before the first run goes: named phases added up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """Nanoseconds by phase, in the order in which phases first ran."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time of the block to phase `name`."""
        started = time.perf_counter_ns()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0) + time.perf_counter_ns() - started
