"""Large copies and gathers in host memory, by several threads: one core alone does not keep up with the bus."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.runtime.hostloops import native

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Array = np.ndarray[Any, Any]

CHUNK = 2 << 20  # bytes worth a thread's while
MAX_THREADS = 12


class HostCopies:
    """A pool of threads, made at the first copy that is large. numpy releases the interpreter while it copies."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or min(MAX_THREADS, os.cpu_count() or 1)
        self._pool: ThreadPoolExecutor | None = None

    def copy(self, target: Array, source: Array) -> None:
        """Copy `source` into `target`, of the same dtype and shape."""
        if target.nbytes < 2 * CHUNK or not target.ndim:
            np.copyto(target, source)
            return
        if native.available() and target.flags.c_contiguous and source.flags.c_contiguous:
            # Past the caches: what a device reads next need not be read here before it is written.
            to, of = (array.reshape(-1).view(np.uint8) for array in (target, source))
            self._each(target.nbytes, target.nbytes, lambda part: native.call("stream", to[part], of[part]))
            return
        self._each(len(target), target.nbytes, lambda part: np.copyto(target[part], source[part]))

    def gather(self, table: Array, rows: Array, out: Array) -> None:
        """`out[i] = table[rows[i]]`; every row number must be in range."""
        # "clip" changes nothing in range, and unlike "raise" writes to `out` directly.
        self._each(len(rows), out.nbytes, lambda part: np.take(table, rows[part], axis=0, out=out[part], mode="clip"))

    def scatter(self, table: Array, rows: Array, source: Array) -> None:
        """`table[rows[i]] = source[i]`; no row twice."""

        def put(part: slice) -> None:
            table[rows[part]] = source[part]

        self._each(len(rows), source.nbytes, put)

    def close(self) -> None:
        """End the threads; may be called twice."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _each(self, length: int, nbytes: int, work: Callable[[slice], object]) -> None:
        parts = min(self._threads, nbytes // CHUNK, length)
        if parts < 2:
            work(slice(0, length))
            return
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._threads, "kgrun copy")
        list(self._pool.map(work, _slices(length, parts)))


def _slices(length: int, parts: int) -> Iterator[slice]:
    for part in range(parts):
        yield slice(length * part // parts, length * (part + 1) // parts)
