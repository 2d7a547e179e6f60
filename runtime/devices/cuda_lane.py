"""A second stream of one GPU for copies beside the steps, through cuda-bindings, usable from any thread.

PyCUDA's objects belong to the thread that made their context current; the driver's own calls take any thread in which
the same primary context is current.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from kgrun.runtime.devices.cuda_driver import DriverCallFailed
from kgrun.runtime.devices.cuda_quick import failed, quick
from kgrun.runtime.devices.cuda_steps import Prepared
from kgrun.runtime.program import Launch

if TYPE_CHECKING:
    import numpy as np

    from kgrun.runtime.devices.base import Address, PreparedStep
    from kgrun.runtime.devices.cuda import CudaDevice
    from kgrun.runtime.program import Step

    Array = np.ndarray[Any, Any]

_NON_BLOCKING = 1
_REGISTER_FLAGS = 1 | 2  # CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_DEVICEMAP
_EVENT_FLAGS = 1 | 2  # CU_EVENT_BLOCKING_SYNC: who waits leaves the processor to others; CU_EVENT_DISABLE_TIMING


_numbers = itertools.count(1)
_lanes: WeakKeyDictionary[CudaDevice, list[CudaLane]] = WeakKeyDictionary()  # those that are open


def _api() -> Any:
    from cuda.bindings import driver

    return driver


class CudaLane:
    """Implements `base.CopyLane`. Made by the thread that runs steps; belongs to its device, which closes it.

    Attributes:
        pinned: whether all host blocks so far are pinned.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device, self._driver, self._api = device, device.driver, _api()
        self._entered = threading.local()
        self._issuing = threading.Lock()  # wait, copy and mark stay together
        self._marks: list[Any] = []
        self._mapped: dict[int, Array] = {}
        self._nbytes, self._name = 0, f"blocks for copies beside the steps ({next(_numbers)})"
        self.pinned = True
        self._driver.activate()
        self._context = device._guard("asking for the context", self._call, "cuCtxGetCurrent")
        self._entered.done = True
        self._steps = self._driver.stream
        self._stream = int(device._guard("making a stream", self._call, "cuStreamCreate", _NON_BLOCKING))
        _lanes.setdefault(device, []).append(self)

    def host_block(self, nbytes: int) -> Array:
        """Pinned bytes; pageable ones where the system pins no more (U1). DoesNotFit where the host has no room."""
        self._nbytes += nbytes
        self._device.host.hold(self._name, self._nbytes)
        try:
            return self._driver.pinned(nbytes)
        except self._driver.errors:
            import numpy as np

            self.pinned = False
            return np.empty(nbytes, np.uint8)

    def map_host(self, array: Array) -> int | None:
        """Register the memory; a refusal is no error, since there are host blocks."""
        at = array.ctypes.data
        try:
            self._enter()
            self._call("cuMemHostRegister", at, array.nbytes, _REGISTER_FLAGS)
            self._mapped[at] = array
            return int(self._call("cuMemHostGetDevicePointer", at, 0))
        except DriverCallFailed:
            return None

    def new_mark(self) -> Any:
        """An event without time."""
        mark = int(self._device._guard("making an event", self._call, "cuEventCreate", _EVENT_FLAGS))
        self._marks.append(mark)
        return mark

    def upload(self, address: int, block: Array, after: Any, mark: Any) -> None:
        """Copy to the device on the lane."""
        self._enter()
        with self._issuing:
            self._call("cuStreamWaitEvent", self._stream, after, 0)
            self._call("cuMemcpyHtoDAsync", address, block.ctypes.data, block.nbytes, self._stream)
            self._call("cuEventRecord", mark, self._stream)

    def download(self, block: Array, address: int, after: Any, mark: Any) -> None:
        """Copy to the host on the lane."""
        self._enter()
        with self._issuing:
            self._call("cuStreamWaitEvent", self._stream, after, 0)
            self._call("cuMemcpyDtoHAsync", block.ctypes.data, address, block.nbytes, self._stream)
            self._call("cuEventRecord", mark, self._stream)

    def wait(self, mark: Any) -> None:
        """Wait on the host."""
        self._enter()
        self._call("cuEventSynchronize", mark)

    def mark_steps(self, mark: Any) -> None:
        """Set a mark on the stream of the steps."""
        self._device._guard("marking the steps", self._at_once, "cuEventRecord", mark, self._steps)

    def steps_wait(self, mark: Any) -> None:
        """Let the stream of the steps wait."""
        self._device._guard("waiting for a copy", self._at_once, "cuStreamWaitEvent", self._steps, mark, 0)

    def move(self, target: int, source: int, nbytes: int) -> None:
        """Copy on the stream of the steps."""
        if nbytes:
            call = "cuMemcpyDtoDAsync_v2", target, source, nbytes, self._steps
            self._device._guard("copying on the GPU", self._at_once, *call)

    def prepare(self, step: Step, address: Address) -> PreparedStep:
        """Pack its launch for the lane's stream."""
        assert isinstance(step.work, Launch)
        call = self._device._prepare_launch(step, step.work, address, self._stream)
        return Prepared(self._device, step.name, call)

    def start(self, steps: Sequence[PreparedStep], after: Any, mark: Any) -> None:
        """Launch on the lane."""
        self._enter()
        with self._issuing:
            if after is not None:
                self._at_once("cuStreamWaitEvent", self._stream, after, 0)
            for step in steps:
                step.launch()
            self._at_once("cuEventRecord", mark, self._stream)

    def drain(self) -> None:
        """Wait for the lane; silent."""
        with contextlib.suppress(DriverCallFailed):  # where the device is lost, so is what was on its way
            self._call("cuStreamSynchronize", self._stream)

    def close(self) -> None:
        """Destroy marks and stream; silent. In a lost context they are gone already."""
        if self not in _lanes.get(self._device, ()):
            return
        _lanes[self._device].remove(self)
        if not self._device._lost:
            self.drain()
            for at in self._mapped:
                self._api.cuMemHostUnregister(at)
            for mark in self._marks:
                self._api.cuEventDestroy(mark)
            self._api.cuStreamDestroy(self._stream)
        self._marks.clear()
        self._mapped.clear()
        self._device.host.drop(self._name)

    def _enter(self) -> None:
        """Make the device's context current in the calling thread, once a thread."""
        if not getattr(self._entered, "done", False):
            self._call("cuCtxSetCurrent", self._context)
            self._entered.done = True

    def _at_once(self, name: str, *arguments: int) -> None:
        status = quick(name)(*arguments)
        if status:
            raise failed(name, status)

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *results = getattr(self._api, name)(*arguments)
        if int(status) != 0:
            code, text = self._api.cuGetErrorString(status)
            words = text.decode() if int(code) == 0 and isinstance(text, bytes) else "error"
            raise DriverCallFailed(f"{name} failed: {words} ({int(status)})")
        return results[0] if len(results) == 1 else None


def lanes_to_close(device: CudaDevice) -> list[Callable[[], None]]:
    """What closes the lanes of a device that are still open."""
    return [lane.close for lane in _lanes.get(device, ())]
