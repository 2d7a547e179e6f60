"""Where the time before the first run goes: named phases added up, and told to whoever wants to know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

# What goes on, as an error says it after "while".
_WORDS = {
    "bind": "binding the graph",
    "open device": "opening the device",
    "lower": "lowering the graph",
    "plan": "planning memory",
    "allocate": "allocating memory",
    "compile": "compiling kernels",
    "load": "loading kernels",
    "capture": "capturing the graph",
    "upload": "copying data to the device",
    "run": "running the graph",
    "download": "copying results from the device",
}


class Phases:
    """Nanoseconds by phase, in the order in which phases first ran.

    Args:
        tell: called with what goes on (`runtime.culprit.Tell`) when a phase starts.
    """

    def __init__(self, tell: Callable[[Mapping[str, object]], None] | None = None) -> None:
        self.spent: dict[str, int] = {}
        self._tell = tell

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time of the block to phase `name`."""
        if self._tell is not None and name in _WORDS:
            self._tell({"doing": _WORDS[name]})
        started = time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(name, time.perf_counter_ns() - started)

    @contextmanager
    def within(self, outer: str, name: str) -> Iterator[None]:
        """Add the time of the block to phase `name` instead of phase `outer`, inside which it runs."""
        before = self.spent.get(name, 0)
        try:
            with self(name):
                yield
        finally:
            self.add(outer, before - self.spent[name])

    def add(self, name: str, ns: int) -> None:
        """Add nanoseconds to phase `name`."""
        self.spent[name] = self.spent.get(name, 0) + ns
