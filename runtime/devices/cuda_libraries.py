"""Vendor libraries on a device's stream: opened when a step first calls one, closed with the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

from kgrun.graphs.errors import DeviceUnavailable
from kgrun.runtime.devices.base import Address
from kgrun.runtime.program import LibraryCall

if TYPE_CHECKING:
    from kgrun.runtime.devices.cuda_driver import Driver

Precision = Literal["float32", "tf32"]


class NotSupported(Exception):
    """A library has no way to do a call; the text says which."""


class Library(Protocol):
    """One library's handle on a stream."""

    version: str

    def prepare(self, call: LibraryCall, address: Address) -> Callable[[], None]:
        """The call, ready to be issued and captured; NotSupported, DeviceFault."""
        ...

    def close(self, lost: bool) -> None:
        """Release the handle, unless its context is gone."""
        ...


class Libraries:
    """The libraries of one device.

    Attributes:
        precision: "float32" keeps products of float32 in float32; "tf32" lets tensor cores round their inputs.
    """

    def __init__(self, driver: Driver, precision: Precision, versions: dict[str, str]) -> None:
        self.precision: Precision = precision
        self._driver, self._versions = driver, versions
        self._open: dict[str, Library] = {}

    def prepare(self, call: LibraryCall, address: Address) -> Callable[[], None]:
        """As `Library.prepare`; DeviceUnavailable for a library that is not there."""
        if call.library == "nccl":
            from kgrun.runtime.collectives.alone import copies, in_no_job

            if in_no_job(call):
                return copies(call, address, self._driver.copy)
        if call.library not in self._open:
            self._open[call.library] = library = self._opened(call)
            self._versions[call.library] = library.version
        return self._open[call.library].prepare(call, address)

    def _opened(self, call: LibraryCall) -> Library:
        match call.library:
            case "cublas":
                from kgrun.runtime.devices.cuda_blas import Blas

                return Blas(self._driver, self.precision)
            case "cudnn":
                from kgrun.runtime.devices.cuda_dnn import Dnn

                return Dnn(self._driver, self.precision)
            case "nccl":
                from kgrun.runtime.devices.cuda_nccl import Nccl

                return Nccl(self._driver)
        raise DeviceUnavailable(f"{call.library}.{call.routine} is not available on a GPU", code="KG711")

    def close(self, lost: bool) -> None:
        """Release all handles."""
        for library in self._open.values():
            library.close(lost)
        self._open.clear()
