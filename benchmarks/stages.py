"""Times of the host's stages: functions wrapped for a while, each call's wall and processor time, by thread."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np


class Stages:
    """Wraps methods of classes between `with` and its end.

    A stage's time on the processor is what it keeps its core busy for, most of it with the interpreter's lock, unless
    it is one compiled call; the rest of its wall time it waits: for the device, for another thread, or for that lock.
    """

    def __init__(self) -> None:
        self.times: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.depths: dict[str, list[int]] = {}
        self._undo: list[tuple[Any, str, Any]] = []

    def watch(self, owner: Any, name: str, label: str, depth: Callable[[Any], dict[str, int]] | None = None) -> None:
        """Take the times of `owner.name` as stage `label`; `depth` gives numbers of its object before each call."""
        plain = owner.__dict__[name]

        @functools.wraps(plain)
        def timed(itself: Any, *args: Any, **words: Any) -> Any:
            if depth is not None:
                for what, number in depth(itself).items():
                    self.depths.setdefault(what, []).append(number)
            started, busy = time.perf_counter_ns(), time.thread_time_ns()
            try:
                return plain(itself, *args, **words)
            finally:
                took = time.perf_counter_ns() - started, time.thread_time_ns() - busy
                words_of = threading.current_thread().name.split()
                who = "main" if threading.current_thread() is threading.main_thread() else words_of[1]
                self.times.setdefault((who, label), []).append(took)

        self._undo.append((owner, name, plain))
        setattr(owner, name, timed)

    def __enter__(self) -> Stages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for owner, name, plain in reversed(self._undo):
            setattr(owner, name, plain)
        self._undo.clear()

    def clear(self) -> None:
        """Forget what was seen so far."""
        self.times.clear()
        self.depths.clear()

    def lines(self, steps: int) -> list[str]:
        """A table: microseconds of each stage, of calls and by step; then how deep the queues were."""
        found = [
            f"  {'thread':6} {'stage':28} {'calls':>7} {'mean us':>8} {'p95 us':>8} {'busy us':>8} {'us a step':>9}"
        ]
        for (who, label), times in sorted(self.times.items(), key=lambda item: (item[0][0] != "main", item[0][1])):
            wall, busy = (np.array(part) / 1e3 for part in zip(*times, strict=True))
            found.append(
                f"  {who:8} {label:28} {len(wall):7,} {wall.mean():8.1f} {np.percentile(wall, 95):8.1f} "
                f"{busy.mean():8.1f} {wall.sum() / steps:9.1f}"
            )
        for what, numbers in self.depths.items():
            counts = np.bincount(numbers)
            shares = ", ".join(f"{n}: {100 * c / len(numbers):.0f} %" for n, c in enumerate(counts) if c)
            found.append(f"  {what}: {shares}")
        return found
