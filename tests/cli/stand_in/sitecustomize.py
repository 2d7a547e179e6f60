"""Put first on PYTHONPATH, this lets every Python of a test see one GPU without there being one.

`FAKE_FAULTS` is a JSON object: kernel -> what its launch brings about. As on a GPU, a fault shows only at a later call
that waits, and every call after that fails too.

    illegal, misaligned, assert   the fault of that name
    once                          an illegal access in the first process alone (`FAKE_ONCE` is a file to remember it by)
    hang                          the wait for it does not end
    refused                       the launch itself fails; the context survives
    exit, interrupt               user code that runs meanwhile leaves by sys.exit; Ctrl-C
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kgrun.runtime.devices import cuda
from tests.runtime.devices.fake_cuda_driver import FakeDriver, FakeError

TEXTS = {
    "illegal": "an illegal memory access was encountered",
    "once": "an illegal memory access was encountered",
    "misaligned": "misaligned address",
    "assert": "device-side assert triggered",
}
WAITING = ("synchronize", "wait", "elapsed", "load", "alloc", "fill", "free")


class FaultyDriver(FakeDriver):
    """A FakeDriver whose kernels fail as `FAKE_FAULTS` says; closing says on stderr how, where `FAKE_TELL` is set."""

    def __init__(self, ordinal: int) -> None:
        super().__init__()
        self.faults: dict[str, str] = json.loads(os.environ.get("FAKE_FAULTS", "{}"))
        self._pending: str | None = None
        self._capturing = False

    def _enter(self, call: str) -> None:
        if call in WAITING and self._pending == "hang":
            _hang()
        if call in WAITING and self._pending is not None and self._sticky is None:
            self._sticky = TEXTS[self._pending]
        if self._sticky is not None:
            raise FakeError(f"{call} failed: {self._sticky}")
        super()._enter(call)

    def launcher(self, function: Any, *args: Any) -> Callable[[], None]:
        issue = super().launcher(function, *args)

        def launch() -> None:
            fault = self.faults.get(function)
            if fault == "refused":
                raise FakeError("cuLaunchKernel failed: too many resources requested for launch")
            if self._capturing:
                return
            if fault == "exit":
                sys.exit(3)
            if fault == "interrupt":
                raise KeyboardInterrupt
            issue()
            if fault == "once" and not _first():
                fault = None
            if fault is not None and self._pending is None:
                self._pending = fault

        return launch

    def capture(self, issue: Sequence[Callable[[], Any]], after: Sequence[Sequence[int]]) -> Any:
        self._capturing = True
        try:
            for call in issue:
                call()
        finally:
            self._capturing = False
        return Replay(list(issue))

    def close(self, lost: bool) -> None:
        if os.environ.get("FAKE_TELL"):
            print(f"closed, {'lost' if lost else 'well'}, {len(self.memory_of)} allocations", file=sys.stderr)
        super().close(lost)


class Replay:
    """Calls in a row."""

    def __init__(self, calls: list[Callable[[], Any]]) -> None:
        self.calls = calls

    def launch(self) -> None:
        for call in self.calls:
            call()

    def close(self) -> None:
        self.calls.clear()


def _hang() -> None:
    """As a wait for the driver: the interpreter's lock is free, and no signal ends it."""
    print("hangs", file=sys.stderr, flush=True)
    mutex = ctypes.create_string_buffer(64)
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
    ctypes.CDLL(None).pthread_mutex_lock(mutex)


def _first() -> bool:
    marker = Path(os.environ["FAKE_ONCE"])
    owner = str(os.getpid())
    if not marker.exists():
        marker.write_text(owner, encoding="ascii")
    return marker.read_text(encoding="ascii") == owner


cuda.PyCudaDriver = FaultyDriver  # type: ignore[misc, assignment]
