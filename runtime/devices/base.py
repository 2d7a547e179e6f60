"""The device seam: the few things kgrun asks of a place where steps run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kgrun.graphs.bound import Warning
from kgrun.graphs.records import dataclass
from kgrun.runtime.host_memory import HostMemory
from kgrun.runtime.program import Pointer, Step

if TYPE_CHECKING:
    import numpy as np

    from kgrun.runtime.report import GpuState, Roofline

Address = Callable[[Pointer], int]
TimingMethod = Literal["auto", "events", "graph", "cupti"]


class NotCapturable(Exception):
    """A step cannot be part of a replay; the text says which and why."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What reports and launch checks need to know of a device.

    Attributes:
        kind: "cpu" or "cuda".
        name: the product's name.
        index: ordinal among devices of its kind.
        arch: "sm_90"; None on the CPU.
        total_memory: bytes.
        versions: driver, runtime and library versions.
    """

    kind: str
    name: str
    index: int
    arch: str | None
    total_memory: int
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostBlock:
    """Host memory that transfers read and write.

    Attributes:
        data: the bytes.
        pageable: why it is not page-locked although that would make transfers faster; None where all is well.
    """

    data: np.ndarray[Any, Any]
    pageable: str | None = None


class PreparedStep(Protocol):
    """A step with its addresses packed and its code loaded."""

    method: str  # how its time is taken, for the report

    def launch(self) -> None:
        """Issue the step on its stream; returns before it ends where the device is asynchronous."""
        ...


class Replay(Protocol):
    """Many steps as one unit, issued by a single call (a CUDA graph)."""

    def launch(self) -> None:
        """Issue all steps; returns before they end."""
        ...

    def close(self) -> None:
        """Release it; may be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """How steps are to be timed.

    Attributes:
        method: "auto" takes the best for each step, "events" marks around it, "graph" many repeats of it in one graph,
            "cupti" the profiler's own records.
        cold: whether the cache is emptied before each step that counts.
        again: for a step, the earlier ones that must come before every repeat of it: what it adds to is cleared there.
        once: steps that must not run twice in a row, because a later one trusts what they leave.
        whole: the run itself as one unit, where its steps follow each other one by one.
    """

    method: TimingMethod = "auto"
    cold: bool = False
    again: Mapping[int, Sequence[int]] = field(default_factory=dict)
    once: frozenset[int] = frozenset()
    whole: Replay | None = None


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What a device measured of each step in runs of its own. All times are nanoseconds.

    Attributes:
        samples: one list a step; an empty one where marks around the step are the best there is.
        methods: how each step was timed; empty where it was not.
        floor_ns: what the method says of a step that does nothing.
        ramp_ns: of each time, the part that a step before it would hide in a run.
        start_ns: what a whole run takes before its first step.
        run_ns: what all steps take in a row, among runs of the same; 0 where that was not measured.
        notes: why another method was used than the one asked for.
    """

    samples: Sequence[Sequence[int]]
    methods: Sequence[str]
    floor_ns: int
    ramp_ns: int = 0
    start_ns: int = 0
    run_ns: int = 0
    notes: Sequence[str] = ()


class CopyLane(Protocol):
    """Copies beside the steps, on a stream of their own. A mark is a place in the order of copies, or of steps.

    What is issued on the lane runs in that order. `upload`, `download` and `wait` may be called from any thread, the
    others from the thread that issues steps. A mark that was never set holds nobody up.

    Attributes:
        pinned: whether host blocks are pinned; pageable ones are the way out where pinning failed (U1).
    """

    pinned: bool

    def host_block(self, nbytes: int) -> np.ndarray[Any, Any]:
        """Host bytes that copies are fast from and to."""
        ...

    def map_host(self, array: np.ndarray[Any, Any]) -> int | None:
        """Pin a C-contiguous, writable array where it lies, until the lane is closed: kernels see it at this address,
        and copies from its parts are as fast as from a host block. None where the system pins no such memory."""
        ...

    def new_mark(self) -> Any:
        """A mark that is not set yet."""
        ...

    def upload(self, address: int, block: np.ndarray[Any, Any], after: Any, mark: Any) -> None:
        """Copy a block to the device once `after` is reached, then set `mark`; the block must keep until then."""
        ...

    def download(self, block: np.ndarray[Any, Any], address: int, after: Any, mark: Any) -> None:
        """Copy from the device into a block once `after` is reached, then set `mark`."""
        ...

    def wait(self, mark: Any) -> None:
        """Let the calling thread wait for a mark."""
        ...

    def mark_steps(self, mark: Any) -> None:
        """Set a mark after all steps issued so far."""
        ...

    def steps_wait(self, mark: Any) -> None:
        """Let the steps issued from now on wait for a mark."""
        ...

    def move(self, target: int, source: int, nbytes: int) -> None:
        """Copy on the device, in order with steps."""
        ...

    def prepare(self, step: Step, address: Address) -> PreparedStep:
        """A kernel that `start` may issue on the lane; raises as `Device.prepare`."""
        ...

    def start(self, steps: Sequence[PreparedStep], after: Any, mark: Any) -> None:
        """Issue kernels on the lane once `after` is reached (None: after what the lane has), then set `mark`."""
        ...

    def drain(self) -> None:
        """Wait for all copies; silent, also on a device that is lost."""
        ...

    def close(self) -> None:
        """Wait for all copies and release marks and stream; silent. May be called twice; closing the device does it."""
        ...


class Device(Protocol):
    """A place where steps run. Addresses are plain integers of that device."""

    info: DeviceInfo
    host: HostMemory  # what the host holds for it

    def allocate(self, nbytes: int) -> int:
        """Address of `nbytes` > 0 fresh bytes, aligned to 512; DoesNotFit when there is no room."""
        ...

    def free(self, address: int) -> None:
        """Return an allocation."""
        ...

    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Copy a C-contiguous array to `address`; returns when the array may be reused."""
        ...

    def download(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Copy from `address` into a C-contiguous array; waits for earlier steps."""
        ...

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set bytes, in order with steps."""
        ...

    def host_block(self, nbytes: int) -> HostBlock:
        """`nbytes` > 0 of host memory, which transfers prepared from now on address; DoesNotFit where there is no room.

        It is the caller's: the device keeps it only until the next call and for the steps prepared meanwhile.
        """
        ...

    def prepare_all(self, steps: Iterable[Step]) -> None:
        """Do beforehand, and side by side, what preparing these steps will need: compile their code."""
        ...

    def prepare(self, step: Step, address: Address) -> PreparedStep:
        """Compile, load and pack a step; CompileError, DeviceUnavailable."""
        ...

    def capture(self, prepared: Sequence[PreparedStep], after: Sequence[Sequence[int]]) -> Replay | None:
        """The steps as one unit in which step i waits for the steps `after[i]`; None where the device has none.

        Raises:
            NotCapturable: one of the steps cannot be part of it.
        """
        ...

    def issue_loop(self, prepared: Sequence[PreparedStep]) -> Callable[[], None]:
        """One call that issues all steps one by one, as lean as the device can."""
        ...

    def time_steps(self, prepared: Sequence[PreparedStep], runs: int, timing: Timing = ...) -> StepTimes | None:
        """Time every step; None where marks around each step are the best there is.

        All steps must have run once. They run in order, and several times in a row unless `timing` says otherwise: what
        they update must be restored afterwards.
        """
        ...

    def marks_floor(self) -> int:
        """Nanoseconds that marks say of a step that does nothing."""
        ...

    def hold(self) -> None:
        """Have the device wait a moment before what is issued next, so that this need not wait for the host."""
        ...

    def flush_cache(self) -> bool:
        """Push what steps may have left in the cache out of it, in order with steps; False where that means nothing."""
        ...

    def copy_lane(self) -> CopyLane | None:
        """A new lane for copies beside the steps; None where steps and copies are the host's own work.

        Who asked for it closes it; at the latest the device does.
        """
        ...

    def read_state(self) -> GpuState | None:
        """What the device's sensors say now; None without sensors."""
        ...

    def roofline(self) -> Roofline | None:
        """Peak rates measured on this device; None where that is not possible."""
        ...

    def synchronize(self) -> None:
        """Wait until all issued steps ended; DeviceFault when one failed."""
        ...

    def record(self) -> Any:
        """A mark in the order of issued steps."""
        ...

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Nanoseconds between two marks; waits for `end`."""
        ...

    def limit_memory(self, nbytes: int | None) -> None:
        """From now on refuse allocations that would hold more than `nbytes` beyond what is held; None: no limit."""
        ...

    def free_memory(self, headroom: int = 0) -> tuple[int, int]:
        """Free and total bytes, under the limit where there is one; `headroom` of the device's own count as taken."""
        ...

    def memory_in_use(self) -> int:
        """Bytes allocated through this device object now."""
        ...

    def peak_memory(self) -> int:
        """Most bytes allocated through this device object at once."""
        ...

    def warnings(self) -> Sequence[Warning]:
        """What went another way than it should, and is worth saying."""
        ...

    def close(self) -> None:
        """Release everything; may be called twice."""
        ...
