"""Put first on PYTHONPATH, this lets every Python of a test see GPUs without there being any, and NCCL between them.

Memory is host memory, kernels do nothing, copies copy. What NCCL is called with runs on the stream's own thread, as on
a GPU, and whatever touches memory or waits comes after it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kgrun.runtime.devices import cuda, cuda_nccl
from tests.runtime.devices.fake_cuda_driver import FACTS, FakeDriver

_AFTER = ("copy_in", "copy_out", "copy", "fill", "launch", "free", "wait", "elapsed", "synchronize")


class Stream:
    """Calls in order, on a thread of their own, over a driver's memory."""

    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver
        self._calls: queue.Queue[Callable[[], None]] = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, call: Callable[[], None]) -> None:
        """Issue it."""
        self._calls.put(call)

    def idle(self) -> bool:
        """Whether all has ended."""
        return self._calls.unfinished_tasks == 0

    def join(self) -> None:
        """Wait until all has."""
        self._calls.join()

    def view(self, address: int, nbytes: int) -> np.ndarray[Any, Any]:
        """The driver's memory."""
        return self._driver.view(address, nbytes)

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            try:
                call()
            finally:
                self._calls.task_done()


class Driver(FakeDriver):
    """A FakeDriver with such a stream."""

    def __init__(self, ordinal: int) -> None:
        super().__init__(replace(FACTS, total_memory=1 << 30))
        self.work = Stream(self)
        globals()["_stream"] = self.work

    def _enter(self, call: str) -> None:
        if call in _AFTER:
            self.patience(self.work.idle)
            self.work.join()
        super()._enter(call)


_stream: Stream | None = None


def stream() -> Stream:
    """The stream of this process's GPU."""
    assert _stream is not None
    return _stream


cuda.PyCudaDriver = Driver  # type: ignore[misc, assignment]
cuda_nccl.same_context = lambda: lambda: None
