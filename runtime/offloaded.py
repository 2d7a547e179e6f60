"""The host's side of a program with transfers: where its tensors are between runs, and how they get there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.runtime.devices.base import Address, Device
from kgrun.runtime.host_memory import OFFLOADED
from kgrun.runtime.program import Pointer

if TYPE_CHECKING:
    from kgrun.runtime.memory.offload.records import Home, Offload

Array = np.ndarray[Any, Any]


class HostHomes:
    """The host memory of one program on one device, and the tensors that have a place in it.

    Args:
        address: where a pointer into the device's memory leads.

    Attributes:
        buffers: indices of the program's buffers that hold such tensors.
        pageable: why the memory is not page-locked; None where it is, or need not be.
    """

    def __init__(self, device: Device, offload: Offload | None, address: Address) -> None:
        self._device, self._address = device, address
        self.homes: tuple[Home, ...] = offload.homes if offload is not None else ()
        self.buffers = frozenset(index for home in self.homes for index in home.buffers)
        self._by_buffer = {index: home for home in self.homes for index in home.buffers}
        self._memory: Array = np.empty(0, np.uint8)
        self.pageable: str | None = None
        if offload is not None and offload.host_bytes:
            made = device.host_block(offload.host_bytes)
            self._memory, self.pageable = made.data, made.pageable

    def close(self) -> None:
        """Give the host memory back; may be called twice."""
        self._memory = np.empty(0, np.uint8)
        self._device.host.drop(OFFLOADED)

    def put(self, home: Home, array: Array) -> None:
        """Give a tensor its value: on the host, and on the device where a run begins with it there."""
        self._device.synchronize()  # an earlier run may still read the host's copy
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._bytes(home)[: flat.size] = flat
        if home.first is not None:
            self._device.upload(self._address(Pointer(home.first)), flat)

    def writer(self, buffer: int) -> Callable[[Array], None] | None:
        """What gives the tensor in `buffer` its value; None where it has no home."""
        home = self._by_buffer.get(buffer)
        return None if home is None else partial(self.put, home)

    def get(self, buffer: int, offset: int, array: Array) -> bool:
        """Fill `array` with what a run left in a buffer; False where the buffer is no tensor's with a home."""
        home = self._by_buffer.get(buffer)
        if home is None:
            return False
        if home.last is not None:
            self._device.download(self._address(Pointer(home.last, offset)), array)
            return True
        self._device.synchronize()
        array.reshape(-1).view(np.uint8)[:] = self._bytes(home)[offset : offset + array.nbytes]
        return True

    def _bytes(self, home: Home) -> Array:
        return self._memory[home.host_offset : home.host_offset + home.nbytes]

    def _value(self, home: Home) -> Array:
        value: Array = np.empty(home.nbytes, np.uint8)
        self.get(home.buffers[-1], 0, value)
        return value

    def snapshot(self) -> Callable[[], None]:
        """Copies of the parameters that runs update (S106); the call returned puts them back."""
        kept = [(h, self._value(h)) for h in self.homes if h.updated and h.memory_class == "parameter"]

        def restore() -> None:
            for home, value in kept:
                self.put(home, value)

        return restore

    def saved(self) -> Callable[[], None]:
        """Copies of what lies in reusable memory between runs; the call returned puts it back."""
        kept = []
        for home in self.homes:
            if home.first is not None:
                value: Array = np.empty(home.nbytes, np.uint8)
                self._device.download(self._address(Pointer(home.first)), value)
                kept.append((self._address(Pointer(home.first)), value))

        def restore() -> None:
            for address, value in kept:
                self._device.upload(address, value)

        return restore
