"""The driver seam over PyCUDA and, for what PyCUDA lacks, cuda-bindings.

One primary context a device, so that cuBLAS and other libraries share it. PyCUDA aborts the process when a context is
still on its stack at exit, and prints a warning for every object it cannot destroy in a lost context. Hence at most one
context is pushed at a time, every way out pops it, and a lost context is detached first: its objects then go silently.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kgrun.graphs.bound import Dim3
from kgrun.graphs.errors import DeviceUnavailable, UsageError
from kgrun.graphs.records import dataclass
from kgrun.runtime.devices.base import Replay
from kgrun.runtime.devices.cuda_driver import DeviceFacts, DriverCallFailed, FunctionFacts, LoadFailed

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

NON_BLOCKING = 1
INSTALL = "pip install 'kgrun[cuda]'; `kgrun doctor` says more"


def load_pycuda() -> Any:
    """`pycuda.driver`, initialised; DeviceUnavailable with one line of reason."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pycuda.driver as cuda
    except ImportError as error:
        text = str(error)
        if "libcuda" in text:
            raise DeviceUnavailable("no NVIDIA driver: libcuda was not found", code="KG702") from error
        raise DeviceUnavailable(f"PyCUDA cannot be imported: {text}", code="KG703", help=INSTALL) from error
    try:
        cuda.init()
        count = cuda.Device.count()
    except cuda.Error as error:
        reason = str(error).partition("failed: ")[2] or str(error)
        raise DeviceUnavailable(f"no usable GPU: {reason}", code="KG704", help="see `nvidia-smi`") from error
    if count == 0:
        raise DeviceUnavailable("no GPU is visible", code="KG704", help="see `nvidia-smi` and CUDA_VISIBLE_DEVICES")
    return cuda


_active: PyCudaDriver | None = None
_open: list[PyCudaDriver] = []


class PyCudaDriver:
    """Driver over one GPU's primary context. Belongs to the thread that made it."""

    def __init__(self, ordinal: int) -> None:
        self.cuda = cuda = load_pycuda()
        count = cuda.Device.count()
        if not 0 <= ordinal < count:
            names = ", ".join(f"cuda:{index} {cuda.Device(index).name()}" for index in range(count))
            raise UsageError(f"there is no GPU {ordinal}", code="KG230", help=f"devices: {names}")
        self.errors: tuple[type[Exception], ...] = (cuda.Error, DriverCallFailed, LoadFailed)
        self.patience: Callable[[Callable[[], bool]], None] = lambda done: None
        device = cuda.Device(ordinal)
        self.facts = _facts(cuda, device)
        self._allocations: dict[int, Any] = {}
        self._modules: list[_Module] = []
        try:
            self.context = device.retain_primary_context()
        except cuda.Error as error:
            raise DeviceUnavailable(f"no context on GPU {ordinal}: {error}", code="KG705") from error
        _open.append(self)
        try:
            self.handle = int(self.context.handle) if hasattr(self.context, "handle") else 0
            self.activate()
            self._stream = cuda.Stream(NON_BLOCKING)
            self.stream = int(self._stream.handle)
        except cuda.Error as error:
            self.close(lost=True)
            raise DeviceUnavailable(f"GPU {ordinal} cannot be used: {error}", code="KG705") from error
        except BaseException:
            self.close(lost=True)
            raise

    def activate(self) -> None:
        """Make this device's context the current one."""
        global _active
        if _active is self:
            return
        if _active is not None:
            _active.context.pop()
            _active = None
        self.context.push()
        _active = self

    def alloc(self, nbytes: int) -> int:
        allocation = self.cuda.mem_alloc(nbytes)
        self._allocations[int(allocation)] = allocation
        return int(allocation)

    def free(self, address: int) -> None:
        self._allocations.pop(address).free()

    def memory(self) -> tuple[int, int]:
        free, total = self.cuda.mem_get_info()
        return int(free), int(total)

    def pinned(self, nbytes: int) -> Array:
        found: Array = self.cuda.pagelocked_empty(nbytes, "uint8")
        return found

    def copy_in(self, address: int, data: Array) -> None:
        self.cuda.memcpy_htod_async(address, data, self._stream)

    def copy_out(self, data: Array, address: int) -> None:
        self.cuda.memcpy_dtoh_async(data, address, self._stream)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self.cuda.memcpy_dtod_async(target, source, nbytes, self._stream)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self.cuda.memset_d8_async(address, byte, nbytes, self._stream)

    def load(self, image: bytes, name: str) -> Any:
        log: list[str] = []

        def keep(_ok: bool, info: str, error: str) -> None:
            log.extend(text.strip("\0\n ") for text in (error, info))

        try:
            module = _Module(self.cuda.module_from_buffer(image, message_handler=keep), image)
        except self.cuda.Error as error:
            raise LoadFailed(str(error), "\n".join(line for line in log if line)) from error
        except UnicodeDecodeError as error:
            # The driver failed before it wrote its log, and PyCUDA reads what stood there. An earlier fault shows here.
            self._stream.synchronize()
            raise LoadFailed("the driver does not load it and gives no log", "") from error
        self._modules.append(module)
        return module

    def function(self, module: Any, symbol: str) -> Any:
        return _Function(module.module.get_function(symbol), module, symbol)

    def function_facts(self, function: Any) -> FunctionFacts:
        attribute, get = self.cuda.function_attribute, function.function.get_attribute
        return FunctionFacts(
            get(attribute.NUM_REGS), get(attribute.SHARED_SIZE_BYTES), get(attribute.MAX_THREADS_PER_BLOCK)
        )

    def allow_shared(self, function: Any, nbytes: int) -> None:
        if nbytes > function.shared:  # several nodes may launch it: the largest wish counts
            function.function.set_attribute(self.cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, nbytes)
            function.shared = nbytes

    def launcher(
        self, function: Any, grid: Dim3, block: Dim3, packed: bytes, shared: int, cluster: Dim3 | None, coop: bool,
        stream: int | None = None,
    ) -> Callable[[], None]:  # fmt: skip
        if cluster is None and not coop and stream is None:
            return partial(function.function._launch_kernel, grid, block, packed, shared, self._stream)
        from kgrun.runtime.devices.cuda_extended import extended_launcher

        return extended_launcher(function, grid, block, packed, shared, cluster, coop, stream or self.stream)

    def capture(self, issue: Sequence[Callable[[], Any]], after: Sequence[Sequence[int]]) -> Replay:
        from kgrun.runtime.devices.cuda_graph import capture

        return capture(self.stream, issue, after)

    def record(self) -> Any:
        return self.cuda.Event().record(self._stream)

    def wait(self, mark: Any) -> None:
        self.patience(mark.query)
        mark.synchronize()

    def elapsed_ns(self, start: Any, end: Any) -> int:
        self.wait(end)
        milliseconds: float = end.time_since(start)
        return round(milliseconds * 1e6)

    def synchronize(self) -> None:
        self.patience(self._stream.is_done)
        self._stream.synchronize()

    def close(self, lost: bool) -> None:
        """Release everything; `lost`: the context failed and its objects cannot be destroyed one by one."""
        global _active
        if self not in _open:
            return
        _open.remove(self)
        if lost:
            with _stderr_muted():
                self.context.detach()
            _active = None if _active is self else _active
        else:
            from kgrun.runtime.devices.cuda_extended import unload_extended

            self.activate()
            for module in self._modules:
                if module.extended is not None:
                    unload_extended(module.extended)
        self._allocations.clear()
        self._modules.clear()
        self._stream = None
        if not lost:
            self.context.pop()
            _active = None
            with _stderr_muted():
                self.context.detach()
        _drop_current(self.handle)
        self.context = None


@dataclass(slots=True)
class _Module:
    module: Any
    image: bytes
    extended: Any = None  # the same code through cuda-bindings, loaded when it is needed


@dataclass(slots=True)
class _Function:
    function: Any
    module: _Module
    symbol: str
    shared: int = 0


def _facts(cuda: Any, device: Any) -> DeviceFacts:
    major, minor = device.compute_capability()
    version = int(cuda.get_driver_version())
    attribute = cuda.device_attribute
    optin = getattr(attribute, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", attribute.MAX_SHARED_MEMORY_PER_BLOCK)
    return DeviceFacts(
        name=device.name(),
        arch=f"sm_{major}{minor}",
        total_memory=int(device.total_memory()),
        shared_optin=int(device.get_attribute(optin)),
        cuda=(version // 1000, version % 1000 // 10),
        l2_bytes=int(device.get_attribute(attribute.L2_CACHE_SIZE)) if hasattr(attribute, "L2_CACHE_SIZE") else 0,
        pci_bus_id=device.pci_bus_id() if hasattr(device, "pci_bus_id") else "",
    )


def _drop_current(handle: int) -> None:
    """Take a released context off the driver's own stack, where PyCUDA's detach leaves it."""
    with contextlib.suppress(Exception):
        from cuda.bindings import driver

        code, current = driver.cuCtxGetCurrent()
        if handle and (int(code) != 0 or int(current) == handle):  # a destroyed context answers with an error
            driver.cuCtxPopCurrent()


@contextlib.contextmanager
def _stderr_muted() -> Iterator[None]:
    """Keep PyCUDA's C++ warnings about a lost context off the terminal."""
    try:
        saved, sink = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # no stderr at all
        yield
        return
    try:
        os.dup2(sink, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(sink)


@atexit.register
def _close_all() -> None:
    for driver in tuple(_open):
        with contextlib.suppress(Exception):
            lost = False
            try:
                driver.activate()
                driver.synchronize()
            except Exception:
                lost = True
            driver.close(lost)
