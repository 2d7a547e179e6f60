"""The CUDA device: steps on one GPU through PyCUDA, on a non-blocking stream in the primary context."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from kgrun.graphs.bound import Warning
from kgrun.graphs.errors import DeviceFault, DoesNotFit, GraphError
from kgrun.graphs.limits import check_launch, limits_of
from kgrun.runtime.devices.allowance import Allowance
from kgrun.runtime.devices.base import Address, CopyLane, DeviceInfo, HostBlock, PreparedStep, Replay, StepTimes, Timing
from kgrun.runtime.devices.cuda_arguments import check_arguments, pack
from kgrun.runtime.devices.cuda_code import CodeStore, LoadedKernel
from kgrun.runtime.devices.cuda_driver import Driver
from kgrun.runtime.devices.cuda_errors import is_sticky, translate
from kgrun.runtime.devices.cuda_host import host_call, locked_memory, transfer_call
from kgrun.runtime.devices.cuda_lane import CudaLane, lanes_to_close
from kgrun.runtime.devices.cuda_libraries import Libraries, NotSupported, Precision
from kgrun.runtime.devices.cuda_pycuda import PyCudaDriver
from kgrun.runtime.devices.cuda_staging import Staging
from kgrun.runtime.devices.cuda_status import gpu_status
from kgrun.runtime.devices.cuda_steps import ON_HOST, DeviceReplay, Prepared, capturable, fault, issue_loop
from kgrun.runtime.host_memory import OFFLOADED, HostMemory
from kgrun.runtime.program import Clear, Copy, HostCall, Launch, LibraryCall, Step, Transfer

if TYPE_CHECKING:
    import numpy as np

    from kgrun.runtime.devices.cuda_measure import CudaTiming
    from kgrun.runtime.devices.cuda_nvml import GpuSensors
    from kgrun.runtime.report import GpuState, Roofline

    Array = np.ndarray[Any, Any]

__all__ = ["CudaDevice", "gpu_status"]

_REMEMBERED = 4_096  # names of steps kept to say where an asynchronous fault may come from
_TIMING = Timing()


class CudaDevice:
    """One GPU. Implements `devices.base.Device`; belongs to the thread that made it.

    Raises:
        DeviceUnavailable: PyCUDA or the driver is missing, or there is no GPU.
        UsageError: `index` names no GPU.
    """

    def __init__(self, index: int = 0, *, driver: Driver | None = None, precision: Precision = "float32") -> None:
        self.driver: Driver = PyCudaDriver(index) if driver is None else driver
        facts = self.driver.facts
        versions = {"cuda_driver": "{}.{}".format(*facts.cuda)}
        self.info = DeviceInfo("cuda", facts.name, index, facts.arch, facts.total_memory, versions)
        self.code = CodeStore(self.driver)
        self.host = HostMemory()
        self._staging = Staging(self.driver)
        self.libraries = Libraries(self.driver, precision, versions)
        self._allowance = Allowance(f"GPU {index} ({facts.name})")
        self._host: HostBlock | None = None
        self._lost = self._closed = False
        self._timing: CudaTiming | None = None
        self._sensors: tuple[GpuSensors | None] | None = None
        self.issued: deque[str | tuple[str, ...]] = deque(maxlen=_REMEMBERED)  # names since the last synchronisation

    # Memory

    def allocate(self, nbytes: int) -> int:
        """Address of `nbytes` > 0 fresh bytes, aligned to 512; DoesNotFit with planned and free bytes."""
        self._check_open()
        self._allowance.check(nbytes)
        try:
            address = self.driver.alloc(nbytes)
        except self.driver.errors as error:
            found = translate(error, "allocation")
            if isinstance(found, DoesNotFit):
                raise self._does_not_fit(nbytes) from error
            self._fail(error, f"allocating {nbytes:,} bytes")
        self._allowance.take(address, nbytes)
        return address

    def free(self, address: int) -> None:
        """Return an allocation. Silent once the context is lost: what it held is gone with it."""
        if not self._allowance.give(address) or self._lost or self._closed:
            return
        try:
            self.driver.activate()
            self.driver.synchronize()  # freeing waits anyway; a fault shows here instead of as a printed warning
            self.driver.free(address)
        except self.driver.errors:
            self._lost = True

    def upload(self, address: int, array: Array) -> None:
        """Copy a C-contiguous array to `address`; returns when the array may be reused."""
        self._copy("upload", array, lambda data: self._staging.upload(address, data, self.host))

    def download(self, address: int, array: Array) -> None:
        """Copy from `address` into a C-contiguous array; waits for earlier steps."""
        self._copy("download", array, lambda data: self._staging.download(data, address, self.host))

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set bytes, in order with steps."""
        if nbytes:
            self._guard("filling memory", self.driver.fill, address, byte, nbytes)

    def host_block(self, nbytes: int) -> HostBlock:
        """Page-locked memory for transfers; pageable, with the reason, where the driver gives none."""
        self._check_open()
        self.host.hold(OFFLOADED, nbytes)
        self._host = locked_memory(self.driver, nbytes)
        return self._host

    def memory_in_use(self) -> int:
        """Bytes allocated through this object now."""
        return self._allowance.held

    def peak_memory(self) -> int:
        """Most bytes allocated through this object at once."""
        return self._allowance.peak

    def limit_memory(self, nbytes: int | None) -> None:
        """Refuse what would hold more than `nbytes` beyond what is held now; None: no limit."""
        self._allowance.limit(nbytes)

    def free_memory(self, headroom: int = 0) -> tuple[int, int]:
        """Free and total bytes of the GPU, as the driver sees them, or those under the limit."""
        self._check_open()
        free, total = self.driver.memory()
        return self._allowance.left(free, headroom), total if self._allowance.total is None else self._allowance.total

    # Steps

    def prepare_all(self, steps: Iterable[Step]) -> None:
        """Compile the code of many steps in parallel before they are prepared one by one."""
        self.code.compile_all(step.work.code for step in steps if isinstance(step.work, Launch))

    def prepare(self, step: Step, address: Address) -> PreparedStep:
        """Compile, load, check and pack a step; CompileError, GraphError, DeviceUnavailable."""
        self._check_open()
        driver, work = self.driver, step.work
        match work:
            case Launch():
                return Prepared(self, step.name, self._prepare_launch(step, work, address))
            case Clear(target=target, nbytes=nbytes):
                at = address(target)
                return Prepared(self, step.name, (lambda: driver.fill(at, 0, nbytes)) if nbytes else _nothing)
            case Copy(target=target, source=source, nbytes=nbytes):
                to, of = address(target), address(source)
                return Prepared(self, step.name, (lambda: driver.copy(to, of, nbytes)) if nbytes else _nothing)
            case Transfer():
                return Prepared(self, step.name, transfer_call(driver, work, address, self._host))
            case HostCall():
                return Prepared(self, step.name, host_call(work, address, self.download, self.upload), ON_HOST)
            case LibraryCall(otherwise=other):
                try:
                    return Prepared(self, step.name, self.libraries.prepare(work, address))
                except NotSupported:
                    if other is None:
                        raise
                    return Prepared(self, step.name, self._prepare_launch(step, other, address))

    def capture(self, prepared: Sequence[PreparedStep], after: Sequence[Sequence[int]]) -> Replay:
        """The steps as one CUDA graph; NotCapturable names a step that runs on the host."""
        steps = capturable(prepared)
        replay = self._guard("capturing the steps", self.driver.capture, [step.issue for step in steps], after)
        return DeviceReplay(self, replay, [step.name for step in steps])

    def issue_loop(self, prepared: Sequence[PreparedStep]) -> Callable[[], None]:
        """One call that issues all steps one by one: packed driver calls and nothing else."""
        return issue_loop(self, prepared)

    def time_steps(self, prepared: Sequence[PreparedStep], runs: int, timing: Timing = _TIMING) -> StepTimes | None:
        """Times of the steps by the method asked for; None where events around each are that."""
        return self._timing_of().time_steps(prepared, runs, timing)

    def marks_floor(self) -> int:
        """What an event pair says of an empty kernel."""
        return self._timing_of().marks_floor()

    def hold(self) -> None:
        """A kernel that turns for a moment."""
        self._timing_of().hold()

    def flush_cache(self) -> bool:
        """Write more than the cache holds, in order with steps."""
        self._timing_of().flush_cache()
        return True

    def copy_lane(self) -> CopyLane:
        """A lane for copies on a stream of its own."""
        return CudaLane(self)

    def read_state(self) -> GpuState | None:
        """What the GPU's sensors say now; None without NVIDIA's management library."""
        if self._sensors is None:
            from kgrun.runtime.devices.cuda_nvml import open_sensors

            self._sensors = (open_sensors(self.driver.facts.pci_bus_id),)
        return self._sensors[0].read() if self._sensors[0] is not None else None

    def roofline(self) -> Roofline | None:
        """Peak rates of this GPU: measured once, then kept on disk."""
        from kgrun.runtime.devices.cuda_roofline import measured_roofline

        return measured_roofline(self)

    def _timing_of(self) -> CudaTiming:
        if self._timing is None:
            from kgrun.runtime.devices.cuda_measure import CudaTiming

            self._timing = CudaTiming(self)
        return self._timing

    def synchronize(self) -> None:
        """Wait until all issued steps ended; DeviceFault when one failed."""
        self._guard("waiting", self.driver.synchronize)
        self.issued.clear()

    def record(self) -> Any:
        """A mark in the order of issued steps."""
        return self._guard("recording an event", self.driver.record)

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Nanoseconds between two marks; waits for `end`."""
        elapsed: int = self._guard("waiting for an event", self.driver.elapsed_ns, start, end)
        return elapsed

    def warnings(self) -> Sequence[Warning]:
        """That large copies go the slow way, where the host gave no pinned memory (U1)."""
        return [Warning("W-PINNED", self._staging.refusal)] if self._staging.refusal else []

    def close(self) -> None:
        """Release everything; prints nothing and raises nothing, also after a fault. May be called twice."""
        if self._closed:
            return
        try:
            if not self._lost:
                self.driver.activate()
                self.driver.synchronize()
        except self.driver.errors:
            self._lost = True
        self._closed = True
        self._host = None
        if self._sensors is not None and self._sensors[0] is not None:
            self._sensors[0].close()
        if self._lost:
            self.driver.close(True)  # first, so that what is dropped below goes silently
        self.libraries.close(self._lost)
        for release in (*lanes_to_close(self), self._staging.close, self.code.clear, self._allowance.clear):
            release()
        if not self._lost:
            self.driver.close(False)

    # What the steps are made of

    def _prepare_launch(
        self, step: Step, launch: Launch, address: Address, stream: int | None = None
    ) -> Callable[[], None]:
        self.driver.activate()
        try:
            kernel = self.code.kernel(launch.code)
        except self.driver.errors as error:
            self._fail(error, f"loading kernel {launch.code.entry}")
        self._check_launch(step, launch, kernel)
        check_arguments(launch, kernel.parameters)
        try:
            if launch.shared + kernel.facts.static_shared > limits_of(self.driver.facts.arch).shared_default:
                self.driver.allow_shared(kernel.function, launch.shared)
            packed = pack(launch.args, address)
            shape = launch.grid, launch.block, packed, launch.shared, launch.cluster, launch.cooperative
            return self.driver.launcher(kernel.function, *shape, stream)
        except self.driver.errors as error:
            self._fail(error, f"preparing {step.name}")

    def _check_launch(self, step: Step, launch: Launch, kernel: LoadedKernel) -> None:
        limits = limits_of(self.driver.facts.arch)
        facts = kernel.facts
        found = check_launch(
            limits, launch.grid, launch.block, facts.static_shared, launch.shared, facts.registers, launch.cluster
        )
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        code = "KG360"
        if not found and threads > facts.max_threads:
            text = f"block of {threads} threads > {facts.max_threads} that kernel {kernel.symbol} was compiled for"
            found.append((text, ("block",)))
            code = "KG361"
        if found:
            message = f"{step.name}: {found[0][0]}"
            others = [GraphError(f"{step.name}: {text}", code=code) for text, _ in found[1:]]
            raise GraphError(message, code=code, others=others, details={"path": list(found[0][1])})

    # Errors

    def _copy(self, doing: str, array: Array, copy: Callable[[Array], None]) -> None:
        if array.nbytes == 0:
            return
        if not array.flags.c_contiguous:
            raise ValueError(f"{doing} needs a C-contiguous array")
        import numpy as np

        self._guard(doing, copy, array.reshape(-1).view(np.uint8))
        self.issued.clear()  # a copy waits for all that was issued before

    def _guard(self, doing: str, call: Callable[..., Any], *args: Any) -> Any:
        self._check_open()
        try:
            return call(*args)
        except self.driver.errors as error:
            self._fail(error, doing)

    def _check_open(self) -> None:
        if self._closed or self._lost:
            state = "closed" if self._closed else "lost after a fault"
            raise DeviceFault(f"GPU {self.info.index} is {state}", code="KG602", help="make a new session")
        self.driver.activate()

    def _fail(self, error: Exception, doing: str, step: str | None = None) -> NoReturn:
        """Raise `error` as the user sees it; a fault that appears while waiting is laid to the steps issued before."""
        if not is_sticky(error):
            found = translate(error, doing)
            if step is not None:
                found.details["suspects"] = [step]
            raise found from error
        self._lost = True
        issued = (name for names in self.issued for name in ((names,) if isinstance(names, str) else names))
        suspects = tuple(dict.fromkeys(issued)) or ((step,) if step else ())
        raise fault(error, doing, suspects) from error

    def _does_not_fit(self, nbytes: int) -> DoesNotFit:
        free, total = self.driver.memory()
        held = self._allowance.held
        other = total - free - held
        return DoesNotFit(
            f"out of memory on GPU {self.info.index} ({self.info.name}): "
            f"{nbytes:,} bytes planned, {free:,} of {total:,} free",
            code="KG410",
            help=f"held by this run: {held:,} bytes; by contexts and other programs: {other:,} bytes. "
            "Lower --dim, or set --memory-limit",
            details={"planned_bytes": nbytes, "free_bytes": free, "total_bytes": total, "held_bytes": held}
            | {"context_bytes": other},
        )


def _nothing() -> None:
    """A step of no bytes."""
