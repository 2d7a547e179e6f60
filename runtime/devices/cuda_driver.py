"""The driver seam: the few calls that CudaDevice makes, and what they answer; `cuda_pycuda` makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kgrun.graphs.bound import Dim3
from kgrun.graphs.records import dataclass
from kgrun.runtime.devices.base import Replay

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class DriverCallFailed(RuntimeError):
    """A driver call through cuda-bindings failed; the text is as PyCUDA words it."""


class LoadFailed(RuntimeError):
    """Code did not load; `log` is the JIT compiler's."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the driver says of a device: `cuda`, the version it supports; `l2_bytes`, 0 where it does not tell;
    `pci_bus_id`, by which NVIDIA's other libraries find the same device.
    """

    name: str
    arch: str
    total_memory: int
    shared_optin: int
    cuda: tuple[int, int]
    l2_bytes: int = 0
    pci_bus_id: str = ""


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """Registers a thread, static shared bytes a block, largest block."""

    registers: int
    static_shared: int
    max_threads: int


class Driver(Protocol):
    """What CudaDevice needs. Addresses are integers; all work goes to one non-blocking stream.

    `patience` is called before each wait with what says whether it is over: it may return early, wait, or give up.
    """

    facts: DeviceFacts
    stream: int
    patience: Callable[[Callable[[], bool]], None]
    errors: tuple[type[Exception], ...]

    def alloc(self, nbytes: int) -> int: ...
    def free(self, address: int) -> None: ...
    def memory(self) -> tuple[int, int]: ...
    def pinned(self, nbytes: int) -> Array: ...
    def copy_in(self, address: int, data: Array) -> None: ...
    def copy_out(self, data: Array, address: int) -> None: ...
    def copy(self, target: int, source: int, nbytes: int) -> None: ...
    def fill(self, address: int, byte: int, nbytes: int) -> None: ...
    def load(self, image: bytes, name: str) -> Any: ...
    def function(self, module: Any, symbol: str) -> Any: ...
    def function_facts(self, function: Any) -> FunctionFacts: ...
    def allow_shared(self, function: Any, nbytes: int) -> None: ...
    def launcher(
        self, function: Any, grid: Dim3, block: Dim3, packed: bytes, shared: int, cluster: Dim3 | None, coop: bool,
        stream: int | None = None,
    ) -> Callable[[], None]: ...  # fmt: skip
    def capture(self, issue: Sequence[Callable[[], Any]], after: Sequence[Sequence[int]]) -> Replay: ...
    def record(self) -> Any: ...
    def wait(self, mark: Any) -> None: ...
    def elapsed_ns(self, start: Any, end: Any) -> int: ...
    def synchronize(self) -> None: ...
    def activate(self) -> None: ...
    def close(self, lost: bool) -> None: ...
