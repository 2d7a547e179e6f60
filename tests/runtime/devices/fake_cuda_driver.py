"""A driver without a GPU: memory in host arrays, launches recorded, a failure injected at any call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kgrun.graphs.bound import Dim3
from kgrun.graphs.cubin import read_cubin
from kgrun.runtime.devices.cuda_driver import DeviceFacts, FunctionFacts


class FakeError(Exception):
    """Stands for `pycuda.driver.Error`."""


ILLEGAL = "cuStreamSynchronize failed: an illegal memory access was encountered"
FACTS = DeviceFacts("Fake H200", "sm_90", 1 << 20, 232_448, (13, 0))


class FakeReplay:
    """Captured calls: they run when it is launched."""

    def __init__(self, issue: Sequence[Callable[[], Any]]) -> None:
        self.issue, self.nodes, self.closed = list(issue), len(issue), False

    def launch(self) -> None:
        assert not self.closed
        for call in self.issue:
            call()

    def close(self) -> None:
        self.closed = True


class FakeDriver:
    """Implements `cuda_driver.Driver`.

    `fail(call, message, skip=0)` makes the call after `skip` good ones raise. A sticky failure makes every later call
    raise too, as on a GPU. `on_launch(symbol, grid, block, packed, shared)` stands for the kernels.
    """

    def __init__(self, facts: DeviceFacts = FACTS) -> None:
        self.facts = facts
        self.stream = 7
        self.errors: tuple[type[Exception], ...] = (FakeError,)
        self.patience: Callable[[Callable[[], bool]], None] = lambda done: None
        self.hangs = False  # what is waited for never ends
        self.calls: list[str] = []
        self.launches: list[tuple[Any, ...]] = []
        self.memory_of: dict[int, np.ndarray[Any, Any]] = {}
        self.shared_allowed: dict[str, int] = {}
        self.pinned_blocks = 0
        self.closed: bool | None = None  # None while open, then whether it was closed as lost
        self.other_bytes = 4_096
        self.on_launch: Callable[..., None] = lambda *_: None
        self.elsewhere: Callable[[int, Callable[[], None]], None] = lambda *_: None  # launches on other streams
        self.registers, self.static_shared, self.max_threads = 32, 0, 1_024
        self._clock = itertools.count(1_000, 1_000)
        self._next = 1 << 32
        self._failures: dict[str, tuple[str, int]] = {}
        self._sticky: str | None = None

    def fail(self, call: str, message: str, skip: int = 0) -> None:
        self._failures[call] = (message, skip)

    def _enter(self, call: str) -> None:
        assert self.closed is None, f"{call} after close"
        self.calls.append(call)
        if self._sticky:
            raise FakeError(self._sticky)
        if call in self._failures:
            message, skip = self._failures[call]
            self._failures[call] = (message, skip - 1)
            if skip == 0:
                if "illegal" in message or "unspecified" in message:
                    self._sticky = message
                raise FakeError(message)

    @property
    def held(self) -> int:
        return sum(array.nbytes for array in self.memory_of.values())

    def alloc(self, nbytes: int) -> int:
        self._enter("alloc")
        if self.held + nbytes + self.other_bytes > self.facts.total_memory:
            raise FakeError("cuMemAlloc failed: out of memory")
        address, self._next = self._next, self._next + -(-nbytes // 512) * 512
        self.memory_of[address] = np.full(nbytes, 0xAB, np.uint8)
        return address

    def free(self, address: int) -> None:
        self._enter("free")
        del self.memory_of[address]

    def memory(self) -> tuple[int, int]:
        return self.facts.total_memory - self.held - self.other_bytes, self.facts.total_memory

    def pinned(self, nbytes: int) -> np.ndarray[Any, Any]:
        self._enter("pinned")
        self.pinned_blocks += 1
        return np.empty(nbytes, np.uint8)

    def view(self, address: int, nbytes: int) -> np.ndarray[Any, Any]:
        for base, array in self.memory_of.items():
            if base <= address and address + nbytes <= base + array.nbytes:
                return array[address - base : address - base + nbytes]
        raise AssertionError(f"{address:#x} + {nbytes} is not allocated")

    def copy_in(self, address: int, data: np.ndarray[Any, Any]) -> None:
        self._enter("copy_in")
        self.view(address, data.nbytes)[:] = data

    def copy_out(self, data: np.ndarray[Any, Any], address: int) -> None:
        self._enter("copy_out")
        data[:] = self.view(address, data.nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._enter("copy")
        self.view(target, nbytes)[:] = self.view(source, nbytes)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self._enter("fill")
        self.view(address, nbytes)[:] = byte

    def load(self, image: bytes, name: str) -> Any:
        self._enter("load")
        return read_cubin(image)

    def function(self, module: Any, symbol: str) -> Any:
        self._enter("function")
        return symbol

    def function_facts(self, function: Any) -> FunctionFacts:
        return FunctionFacts(self.registers, self.static_shared, self.max_threads)

    def allow_shared(self, function: Any, nbytes: int) -> None:
        self._enter("allow_shared")
        self.shared_allowed[function] = max(nbytes, self.shared_allowed.get(function, 0))

    def launcher(
        self, function: Any, grid: Dim3, block: Dim3, packed: bytes, shared: int, cluster: Dim3 | None, coop: bool,
        stream: int | None = None,
    ) -> Callable[[], None]:  # fmt: skip
        self._enter("launcher")

        def launch() -> None:
            self._enter("launch")
            self.launches.append((function, grid, block, packed, shared, cluster, coop))
            if stream is None:
                self.on_launch(function, grid, block, packed, shared)
            else:
                self.elsewhere(stream, lambda: self.on_launch(function, grid, block, packed, shared))

        return launch

    def capture(self, issue: Sequence[Callable[[], Any]], after: Sequence[Sequence[int]]) -> Any:
        self._enter("capture")
        return FakeReplay(issue)

    def record(self) -> Any:
        self._enter("record")
        return next(self._clock)

    def wait(self, mark: Any) -> None:
        self.patience(lambda: not self.hangs)
        self._enter("wait")

    def elapsed_ns(self, start: Any, end: Any) -> int:
        self._enter("elapsed")
        return int(end - start)

    def synchronize(self) -> None:
        self.patience(lambda: not self.hangs)
        self._enter("synchronize")

    def activate(self) -> None:
        assert self.closed is None

    def close(self, lost: bool) -> None:
        assert self.closed is None
        self.closed = lost
        self.memory_of.clear()
