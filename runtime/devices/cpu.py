"""The CPU as a device: numpy over plain host memory, steps run at once, in order."""

from __future__ import annotations

import ctypes
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.bound import Warning
from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.errors import DeviceFault, DoesNotFit, GraphError, KgrunError
from kgrun.runtime.devices.allowance import Allowance
from kgrun.runtime.devices.base import Address, DeviceInfo, HostBlock, PreparedStep, Timing
from kgrun.runtime.devices.cpu_kernels import CpuKernels
from kgrun.runtime.host_memory import OFFLOADED, HostMemory, available_memory, check_room, total_memory
from kgrun.runtime.program import ArrayRef, Clear, Copy, HostCall, Launch, LibraryCall, Step, Transfer

if TYPE_CHECKING:
    from kgrun.runtime.checks.followed import KernelChecks

ALIGNMENT = 512
_TIMING = Timing()


class CpuDevice:
    """Runs numpy kernels, and custom CUDA kernels where the compiler for them is installed.

    Args:
        memory: bytes of a simulated device memory: more is refused as a GPU refuses it. None: what the host has.
    """

    def __init__(self, memory: int | None = None) -> None:
        self.info = DeviceInfo(
            kind="cpu",
            name=platform.processor() or platform.machine(),
            index=0,
            arch=None,
            total_memory=total_memory() if memory is None else memory,
            versions={"python": platform.python_version(), "numpy": np.__version__},
        )
        self._blocks: dict[int, np.ndarray[Any, Any]] = {}
        self.host = HostMemory()
        self._allowance = Allowance("the CPU device", memory)
        self._kernels = CpuKernels()
        self._host: HostBlock | None = None

    def allocate(self, nbytes: int) -> int:
        """Address of fresh bytes, aligned to 512; DoesNotFit beyond the limit, or where the host has not so many."""
        self._allowance.check(nbytes)
        check_room(nbytes, "the graph's memory")
        try:
            block = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
        except MemoryError:
            raise DoesNotFit(f"the host has no room for {nbytes:,} bytes", code="KG402") from None
        address = block.ctypes.data + -block.ctypes.data % ALIGNMENT
        self._blocks[address] = block
        self._allowance.take(int(address), nbytes)
        return int(address)

    def free(self, address: int) -> None:
        """Return an allocation."""
        del self._blocks[address]
        self._allowance.give(address)

    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Copy a C-contiguous array to `address`."""
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def download(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Copy from `address` into a C-contiguous array."""
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set bytes."""
        ctypes.memset(address, byte, nbytes)

    def host_block(self, nbytes: int) -> HostBlock:
        """Plain memory: the host's copy of what the device has no room for."""
        self.host.hold(OFFLOADED, nbytes)
        self._host = plain_memory(nbytes)
        return self._host

    def check_kernels(self, checks: KernelChecks | None) -> None:
        """Follow what custom kernels prepared from now on do; None: no more."""
        self._kernels.checks = checks

    def prepare_all(self, steps: Iterable[Step]) -> None:
        """Compile custom kernels, several at a time."""
        self._kernels.prepare_all(step.work.code for step in steps if isinstance(step.work, Launch))

    def prepare(self, step: Step, address: Address) -> PreparedStep:
        """A step ready to run."""
        work = step.work
        match work:
            case HostCall(function, inputs, outputs):
                sources = [None if a is None else array_at(a, address) for a in inputs]
                targets = [array_at(a, address) for a in outputs]
                return _HostStep(step.name, lambda: function(sources, targets))
            case Clear(target, nbytes):
                place = address(target)
                return _HostStep(step.name, lambda: ctypes.memset(place, 0, nbytes))
            case Copy(target, source, nbytes):
                to, origin = address(target), address(source)
                return _HostStep(step.name, lambda: ctypes.memmove(to, origin, nbytes))
            case Transfer():
                return _HostStep(step.name, self._transfer(work, address))
            case LibraryCall(library="mpi"):
                from kgrun.runtime.collectives.calls import prepare

                return _HostStep(step.name, prepare(work, address))
            case Launch():
                return _HostStep(step.name, self._kernels.launcher(step, work, address))
        raise AssertionError(f"{type(work).__name__} is not lowered for the CPU")

    def _transfer(self, work: Transfer, address: Address) -> Callable[[], Any]:
        assert self._host is not None, "a transfer needs host memory"
        host, place, nbytes = self._host.data, address(work.pointer), work.nbytes
        there = host.ctypes.data + work.host_offset
        to, origin = (place, there) if work.direction == "in" else (there, place)

        def copy() -> None:
            assert host.size  # held for as long as the step is
            ctypes.memmove(to, origin, nbytes)

        return copy

    def capture(self, prepared: Sequence[PreparedStep], after: Sequence[Sequence[int]]) -> None:
        """Nothing: calls on the host cost little."""

    def issue_loop(self, prepared: Sequence[PreparedStep]) -> Callable[[], None]:
        """One call that runs all steps."""
        launches = [step.launch for step in prepared]

        def run() -> None:
            for launch in launches:
                launch()

        return run

    def time_steps(self, prepared: Sequence[PreparedStep], runs: int, timing: Timing = _TIMING) -> None:
        """Nothing: the host clock around each step is exact enough."""

    def marks_floor(self) -> int:
        """What two readings of the host clock are apart: the median of some."""
        return sorted(-time.perf_counter_ns() + time.perf_counter_ns() for _ in range(31))[15]

    def hold(self) -> None:
        """Nothing: steps here are the host's own work."""

    def flush_cache(self) -> bool:
        """False: the caches of a host are not emptied."""
        return False

    def copy_lane(self) -> None:
        """None: a copy here is the host's own work."""

    def read_state(self) -> None:
        """None: a host's clocks are its own affair."""

    def roofline(self) -> None:
        """None: it is measured on GPUs alone."""

    def synchronize(self) -> None:
        """Nothing to wait for: a step ends before `launch` returns."""

    def record(self) -> Any:
        """The time now."""
        return time.perf_counter_ns()

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Nanoseconds between two marks."""
        return int(end - start)

    def limit_memory(self, nbytes: int | None) -> None:
        """Refuse what would hold more than `nbytes` beyond what is held now; None: no limit."""
        self._allowance.limit(nbytes)

    def free_memory(self, headroom: int = 0) -> tuple[int, int]:
        """Free and total bytes: of the simulated memory or the limit, else of the host."""
        total = self._allowance.total
        return self._allowance.left(available_memory(), headroom), self.info.total_memory if total is None else total

    def memory_in_use(self) -> int:
        """Bytes allocated now."""
        return self._allowance.held

    def peak_memory(self) -> int:
        """Most bytes allocated at once."""
        return self._allowance.peak

    def warnings(self) -> Sequence[Warning]:
        """None."""
        return ()

    def close(self) -> None:
        """Release everything."""
        self._blocks.clear()
        self._allowance.clear()


def plain_memory(nbytes: int) -> HostBlock:
    """Host memory that is not page-locked; DoesNotFit KG402 where the host has not so many bytes to give."""
    try:
        return HostBlock(np.empty(nbytes, np.uint8))
    except MemoryError:
        raise DoesNotFit(f"the host has no room for {nbytes:,} bytes of offloaded tensors", code="KG402") from None


class _HostStep:
    method = "host clock"

    def __init__(self, name: str, call: Any) -> None:
        self._name = name
        self._call = call

    def launch(self) -> None:
        try:
            with np.errstate(all="ignore"):
                self._call()
        except (KgrunError, MemoryError):
            raise
        except IndexError as error:  # numpy looks at every index; a GPU does not
            raise GraphError(f"{self._name!r} is given an index out of range: {error}", code="KG333") from error
        except Exception as error:
            raise DeviceFault(f"{self._name!r} failed: {error}", code="KG610") from error


def array_at(ref: ArrayRef, address: Address) -> np.ndarray[Any, Any]:
    """A typed numpy view of device memory; the device keeps the memory alive."""
    dtype = numpy_dtype(ref.dtype)
    count = int(np.prod(ref.shape, dtype=np.int64))
    if count == 0:
        return np.empty(ref.shape, dtype)
    memory = (ctypes.c_uint8 * (count * itemsize(ref.dtype))).from_address(address(ref.pointer))
    return np.ctypeslib.as_array(memory).view(dtype).reshape(ref.shape)
