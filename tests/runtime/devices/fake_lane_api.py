"""The driver's calls that a lane makes, over a FakeDriver: copies wait until somebody waits for them.

A copy moves its bytes as late as the marks allow, so whoever reuses a block too early, or reads the device without
waiting for its mark, sees wrong bytes.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kgrun.runtime.devices import cuda_lane
from kgrun.runtime.devices.cuda_driver import DriverCallFailed
from tests.runtime.devices.fake_cuda_driver import FakeDriver


class FakeLaneApi:
    """Stands for `cuda.bindings.driver`. `fail(call, status)` lets a call fail from now on."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.calls: list[str] = []
        self.contexts: dict[int, int] = {threading.get_ident(): 99}  # by thread
        self.alive: set[int] = set()
        self.registered: dict[int, int] = {}  # host memory pinned in place: address, bytes
        self._numbers = itertools.count(1_000)
        self._pending: dict[int, list[Callable[[], None]]] = {driver.stream: []}
        self._events: dict[int, tuple[int, int]] = {}  # event: its stream, and that stream's calls before it
        self._done: dict[int, int] = {driver.stream: 0}
        self._failures: dict[str, int] = {}
        self._lock = threading.RLock()
        driver.elsewhere = lambda stream, launch: self._pending[stream].append(launch)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have lanes call this, by way of the package and past it."""
        monkeypatch.setattr(cuda_lane, "_api", lambda: self)
        monkeypatch.setattr(cuda_lane, "quick", lambda name: lambda *arguments: getattr(self, name)(*arguments)[0])
        words = lambda status: self.cuGetErrorString(status)[1].decode()  # noqa: E731
        failure = lambda name, status: DriverCallFailed(f"{name} failed: {words(status)} ({status})")  # noqa: E731
        monkeypatch.setattr(cuda_lane, "failed", failure)

    def fail(self, call: str, status: int) -> None:
        self._failures[call] = status

    def CUstream(self, number: int) -> int:
        return number

    def __getattr__(self, name: str) -> Any:
        call = getattr(type(self), f"_{name}", None)
        if call is None:
            raise AttributeError(name)

        def checked(*arguments: Any) -> tuple[Any, ...]:
            with self._lock:
                self.calls.append(name)
                if name in self._failures:
                    return (self._failures[name], None)
                assert name == "cuCtxSetCurrent" or self.contexts.get(threading.get_ident()) == 99, "no context here"
                result = call(self, *arguments)
                return (0,) if result is None else (0, result)

        return checked

    def cuGetErrorString(self, status: int) -> tuple[int, bytes]:
        return 0, b"invalid resource handle" if status == 400 else b"something else"

    def _cuCtxGetCurrent(self) -> int:
        return self.contexts[threading.get_ident()]

    def _cuCtxSetCurrent(self, context: int) -> None:
        self.contexts[threading.get_ident()] = context

    def _cuStreamCreate(self, flags: int) -> int:
        assert flags == 1
        number = next(self._numbers)
        self._pending[number], self._done[number] = [], 0
        self.alive.add(number)
        return number

    def _cuEventCreate(self, flags: int) -> int:
        assert flags & 2
        number = next(self._numbers)
        self.alive.add(number)
        return number

    def _cuMemHostRegister(self, host: int, nbytes: int, flags: int) -> None:
        assert flags == 3
        assert host not in self.registered
        self.registered[host] = nbytes

    def _cuMemHostUnregister(self, host: int) -> None:
        del self.registered[host]

    def _cuMemHostGetDevicePointer(self, host: int, flags: int) -> int:
        assert host in self.registered
        return host

    def _cuStreamDestroy(self, stream: int) -> None:
        self.alive.remove(stream)

    def _cuEventDestroy(self, event: int) -> None:
        self.alive.remove(event)

    def _cuEventRecord(self, event: int, stream: int) -> None:
        self._events[event] = (stream, self._done[stream] + len(self._pending[stream]))

    def _cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        state = self._events.get(event)
        if state is not None and stream == self.driver.stream:
            self._run(*state)  # steps of the fake driver run at once, so what they wait for runs now
        elif state is not None:
            self._pending[stream].append(lambda: self._run(*state))

    def _cuMemcpyHtoDAsync(self, address: int, host: int, nbytes: int, stream: int) -> None:
        def copy() -> None:
            self.driver.view(address, nbytes)[:] = _bytes(host, nbytes)

        self._pending[stream].append(copy)

    def _cuMemcpyDtoDAsync_v2(self, target: int, source: int, nbytes: int, stream: int) -> None:
        assert stream == self.driver.stream
        self.driver.copy(target, source, nbytes)

    def _cuMemcpyDtoHAsync(self, host: int, address: int, nbytes: int, stream: int) -> None:
        def copy() -> None:
            _bytes(host, nbytes)[:] = self.driver.view(address, nbytes)

        self._pending[stream].append(copy)

    def _cuEventSynchronize(self, event: int) -> None:
        if event in self._events:
            self._run(*self._events[event])

    def _cuStreamSynchronize(self, stream: int) -> None:
        self._run(stream, self._done[stream] + len(self._pending[stream]))

    def _run(self, stream: int, until: int) -> None:
        while self._done[stream] < until:
            self._done[stream] += 1
            self._pending[stream].pop(0)()


def _bytes(address: int, nbytes: int) -> np.ndarray[Any, Any]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
