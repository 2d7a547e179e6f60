"""The CUDA device: steps on one GPU through PyCUDA, on a non-blocking stream in the primary context."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from kgrun.graphs.errors import DeviceFault, DeviceUnavailable, DoesNotFit, GraphError
from kgrun.graphs.limits import check_launch, limits_of
from kgrun.runtime.devices.base import Address, DeviceInfo, NotCapturable, PreparedStep, Replay, StepTimes
from kgrun.runtime.devices.cuda_arguments import check_arguments, pack
from kgrun.runtime.devices.cuda_code import CodeStore, LoadedKernel
from kgrun.runtime.devices.cuda_driver import Driver, PyCudaDriver
from kgrun.runtime.devices.cuda_errors import is_sticky, translate
from kgrun.runtime.devices.cuda_staging import Staging
from kgrun.runtime.devices.cuda_status import gpu_status
from kgrun.runtime.program import ArrayRef, Clear, Copy, HostCall, KernelCode, Launch, LibraryCall, Step

if TYPE_CHECKING:
    import numpy as np

    from kgrun.runtime.devices.cuda_blas import Blas
    from kgrun.runtime.devices.cuda_timing import LaunchCosts

    Array = np.ndarray[Any, Any]

__all__ = ["CudaDevice", "gpu_status"]

_REMEMBERED = 4_096  # names of steps kept to say where an asynchronous fault may come from
_NAMED = 8
_EMPTY = 'extern "C" __global__ void empty() {}'


class CudaDevice:
    """One GPU. Implements `devices.base.Device`; belongs to the thread that made it.

    Raises:
        DeviceUnavailable: PyCUDA or the driver is missing, or there is no GPU.
        UsageError: `index` names no GPU.
    """

    def __init__(self, index: int = 0, *, driver: Driver | None = None) -> None:
        self.driver: Driver = PyCudaDriver(index) if driver is None else driver
        facts = self.driver.facts
        versions = {"cuda_driver": "{}.{}".format(*facts.cuda)}
        self.info = DeviceInfo("cuda", facts.name, index, facts.arch, facts.total_memory, versions)
        self.code = CodeStore(self.driver)
        self._staging = Staging(self.driver)
        self._blas: Blas | None = None
        self._sizes: dict[int, int] = {}
        self._held = self._peak = 0
        self._lost = self._closed = False
        self._costs: LaunchCosts | None = None
        self.issued: deque[str | tuple[str, ...]] = deque(maxlen=_REMEMBERED)  # names since the last synchronisation

    # Memory

    def allocate(self, nbytes: int) -> int:
        """Address of `nbytes` > 0 fresh bytes, aligned to 512; DoesNotFit with planned and free bytes."""
        self._check_open()
        try:
            address = self.driver.alloc(nbytes)
        except self.driver.errors as error:
            found = translate(error, "allocation")
            if isinstance(found, DoesNotFit):
                raise self._does_not_fit(nbytes) from error
            self._fail(error, f"allocating {nbytes} bytes")
        self._sizes[address] = nbytes
        self._held += nbytes
        self._peak = max(self._peak, self._held)
        return address

    def free(self, address: int) -> None:
        """Return an allocation. Silent once the context is lost: what it held is gone with it."""
        nbytes = self._sizes.pop(address, None)
        if nbytes is None:
            return
        self._held -= nbytes
        if self._lost or self._closed:
            return
        try:
            self.driver.activate()
            self.driver.synchronize()  # freeing waits anyway; a fault shows here instead of as a printed warning
            self.driver.free(address)
        except self.driver.errors:
            self._lost = True

    def upload(self, address: int, array: Array) -> None:
        """Copy a C-contiguous array to `address`; returns when the array may be reused."""
        self._copy("upload", array, lambda data: self._staging.upload(address, data))

    def download(self, address: int, array: Array) -> None:
        """Copy from `address` into a C-contiguous array; waits for earlier steps."""
        self._copy("download", array, lambda data: self._staging.download(data, address))

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set bytes, in order with steps."""
        if nbytes:
            self._guard("filling memory", self.driver.fill, address, byte, nbytes)

    def memory_in_use(self) -> int:
        """Bytes allocated through this object now."""
        return self._held

    def peak_memory(self) -> int:
        """Most bytes allocated through this object at once."""
        return self._peak

    def free_memory(self) -> tuple[int, int]:
        """Free and total bytes of the GPU, as the driver sees them."""
        self._check_open()
        return self.driver.memory()

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
            case HostCall():
                return Prepared(self, step.name, self._prepare_host_call(work, address), "host clock")
            case LibraryCall(library="cublas"):
                return Prepared(self, step.name, self._library().prepare(work, address))
        raise DeviceUnavailable(f"{work.library}.{work.routine} is not available on a GPU", code="KG711")

    def capture(self, prepared: Sequence[PreparedStep], after: Sequence[Sequence[int]]) -> Replay:
        """The steps as one CUDA graph; NotCapturable names a step that runs on the host."""
        steps = _capturable(prepared)
        replay = self._guard("capturing the steps", self.driver.capture, [step.raw for step in steps], after)
        return _DeviceReplay(self, replay, [step.name for step in steps])

    def time_steps(self, prepared: Sequence[PreparedStep], runs: int) -> StepTimes | None:
        """Times of the steps in graphs of repeats; None where a step cannot be captured."""
        from kgrun.runtime.devices.cuda_timing import launch_costs, time_steps

        try:
            calls = [step.raw for step in _capturable(prepared)]
        except NotCapturable:
            return None
        timer = _ChainTimer(self)
        if self._costs is None:
            self._costs = launch_costs(timer, self._empty_launch())
        return time_steps(timer, calls, runs, self._costs)

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
        if self._lost:
            self.driver.close(True)  # first, so that what is dropped below goes silently
        for release in (self._staging.close, self.code.clear, self._close_blas, self._sizes.clear):
            release()
        if not self._lost:
            self.driver.close(False)

    # What the steps are made of

    def _prepare_launch(self, step: Step, launch: Launch, address: Address) -> Callable[[], None]:
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
            return self.driver.launcher(
                kernel.function, launch.grid, launch.block, packed, launch.shared, launch.cluster, launch.cooperative
            )
        except self.driver.errors as error:
            self._fail(error, f"preparing {step.name}")

    def _empty_launch(self) -> Callable[[], None]:
        code = KernelCode(_EMPTY, None, "cuda", "kgrun:empty.cu", "empty")
        function = self._guard("loading a kernel", self.code.kernel, code).function
        return self.driver.launcher(function, (1, 1, 1), (32, 1, 1), b"", 0, None, False)

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

    def _prepare_host_call(self, work: HostCall, address: Address) -> Callable[[], None]:
        import numpy as np

        from kgrun.graphs.data import numpy_dtype

        def host(ref: ArrayRef) -> tuple[int, Array]:
            return address(ref.pointer), np.empty(ref.shape, numpy_dtype(ref.dtype))

        inputs = [None if ref is None else host(ref) for ref in work.inputs]
        outputs = [host(ref) for ref in work.outputs]

        def run() -> None:
            for item in inputs:
                if item is not None:
                    self.download(*item)
            work.function([None if item is None else item[1] for item in inputs], [array for _, array in outputs])
            for place, array in outputs:
                self.upload(place, array)

        return run

    def _library(self) -> Blas:
        if self._blas is None:
            from kgrun.runtime.devices.cuda_blas import Blas

            self._blas = Blas(self.driver)
            self.info.versions["cublas"] = self._blas.version
        return self._blas

    def _close_blas(self) -> None:
        if self._blas is not None:
            self._blas.close(self._lost)

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
        raise _fault(error, doing, suspects) from error

    def _does_not_fit(self, nbytes: int) -> DoesNotFit:
        free, total = self.driver.memory()
        other = total - free - self._held
        return DoesNotFit(
            f"out of memory on GPU {self.info.index} ({self.info.name}): "
            f"{nbytes} bytes planned, {free} of {total} free",
            code="KG410",
            help=f"held by this run: {self._held} bytes; by contexts and other programs: {other} bytes. "
            "Lower --dim, or set --memory-limit",
            details={"planned_bytes": nbytes, "free_bytes": free, "total_bytes": total, "held_bytes": self._held}
            | {"context_bytes": other},
        )


class Prepared:
    """A step ready to be issued. `raw` is the bare call, for loops that count every nanosecond."""

    __slots__ = ("_device", "method", "name", "raw")

    def __init__(self, device: CudaDevice, name: str, raw: Callable[[], None], method: str = "stream events") -> None:
        self._device, self.name, self.raw, self.method = device, name, raw, method

    def launch(self) -> None:
        """Issue the step; DeviceFault when the driver refuses it or an earlier step has failed."""
        device = self._device
        device.driver.activate()
        device.issued.append(self.name)
        try:
            self.raw()
        except device.driver.errors as error:
            device._fail(error, f"launching {self.name}", self.name)


class _DeviceReplay:
    """A captured graph whose faults are laid to its steps."""

    def __init__(self, device: CudaDevice, replay: Replay, names: Sequence[str]) -> None:
        self._device, self._replay = device, replay
        self.names = tuple(names)

    def launch(self) -> None:
        """Issue the whole graph; DeviceFault when the driver refuses it or an earlier step has failed."""
        device = self._device
        device.driver.activate()
        device.issued.append(self.names)
        try:
            self._replay.launch()
        except device.driver.errors as error:
            device._fail(error, "launching the graph")

    def close(self) -> None:
        """Destroy the graph; silent, may be called twice."""
        if not self._device._lost and not self._device._closed:
            self._device.driver.activate()
            self._replay.close()


class _ChainTimer:
    """Calls captured in a row and timed by events around their replay."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device

    def chain(self, calls: Sequence[Callable[[], Any]]) -> Replay:
        """A replay in which each call waits for the one before it."""
        device = self._device
        order = [[i - 1] if i else [] for i in range(len(calls))]
        replay = device._guard("capturing a step", device.driver.capture, calls, order)
        return _DeviceReplay(device, replay, [])

    def timed(self, replay: Replay) -> int:
        """Nanoseconds of one replay."""
        start = self._device.record()
        replay.launch()
        return self._device.elapsed_ns(start, self._device.record())


def _capturable(prepared: Sequence[PreparedStep]) -> list[Prepared]:
    steps = [step for step in prepared if isinstance(step, Prepared)]
    for step in steps:
        if step.method == "host clock":
            raise NotCapturable(f"{step.name} runs on the host")
    return steps


def _nothing() -> None:
    """A step of no bytes."""


def _fault(error: Exception, doing: str, suspects: Sequence[str]) -> DeviceFault:
    found = translate(error, doing)
    details = dict(found.details) | {"suspects": list(suspects[-_NAMED:])}
    what = found.message.partition(": ")[2]
    if len(suspects) == 1:
        return DeviceFault(f"{suspects[0]}: {what}", code="KG601", help=found.help, details=details)
    shown = ", ".join(suspects[-_NAMED:])
    more = f" and {len(suspects) - _NAMED} before" if len(suspects) > _NAMED else ""
    message = f"{what}, found while {doing}" + (f"; issued since the last wait: {shown}{more}" if suspects else "")
    return DeviceFault(
        message, code="KG601", help=f"{found.help}; run with --sync-each to find the kernel", details=details
    )
