"""The records of planned offload: what may move, what moves when, and what a program then knows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

OffloadMode = Literal["auto", "off", "manual", "seeds"]


@dataclass(frozen=True, slots=True)
class Rates:
    """What the link between host and device moves: bytes a second each way, and nanoseconds before the first byte."""

    in_bytes_per_s: float
    out_bytes_per_s: float
    latency_ns: float = 0.0

    def in_ns(self, nbytes: int) -> float:
        """Nanoseconds of a copy to the device."""
        return self.latency_ns + nbytes * 1e9 / self.in_bytes_per_s

    def out_ns(self, nbytes: int) -> float:
        """Nanoseconds of a copy to the host."""
        return self.latency_ns + nbytes * 1e9 / self.out_bytes_per_s


@dataclass(frozen=True, slots=True)
class Tensor:
    """A buffer of the program as offload sees it.

    Attributes:
        buffer: its index in the program.
        nbytes, held: bytes of data, and bytes that its memory takes.
        touches: steps that read or write it, ascending.
        writes: those that write it.
        persistent: its value comes from outside and lives from run to run (inputs, parameters, constants).
        wanted: it is read after the run (outputs).
        movable: whether it may leave the device.
        forced: the user wants it to leave whenever it is not used.
    """

    buffer: int
    name: str
    nbytes: int
    held: int
    touches: tuple[int, ...]
    writes: frozenset[int]
    persistent: bool = False
    wanted: bool = False
    movable: bool = True
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch between two uses of a tensor, in which its bytes may serve others.

    Attributes:
        tensor: index in `Problem.tensors`.
        touch: it comes after this one of the tensor's touches; after the last one it leads round to the first of the
            next run (persistent tensors), or to the end (wanted ones).
        spans: half-open ranges of steps that it frees.
        idle_ns: time that the steps in them take.
        out: whether leaving may need a copy out; `back`: whether a copy in follows.
    """

    tensor: int
    touch: int
    spans: tuple[tuple[int, int], ...]
    idle_ns: float
    out: bool
    back: bool

    @property
    def steps(self) -> int:
        """How many steps it frees."""
        return sum(high - low for low, high in self.spans)


@dataclass(frozen=True, slots=True)
class Problem:
    """What to offload, as plain numbers: steps with their times, tensors, gaps, and the room there is.

    Attributes:
        ns: nanoseconds of each step.
        fixed: bytes that stay throughout.
        capacity: bytes that fixed and all others may take together.
    """

    ns: Sequence[float]
    tensors: Sequence[Tensor]
    gaps: Sequence[Gap]
    fixed: int
    capacity: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class Stay:
    """One residency of a tensor.

    Attributes:
        touches: of the tensor, those that fall into it.
        comes: whether a copy in precedes it; `goes`: whether it leaves the device afterwards.
        dirty: whether the host's copy is out of date at its end.
        ready: the step after which a copy out may start: its last write; -1 where that was in an earlier run.
    """

    touches: tuple[int, ...]
    comes: bool
    goes: bool
    dirty: bool
    ready: int


@dataclass(frozen=True, slots=True)
class Part:
    """One absence of a tensor within a run.

    Attributes:
        start, end: it may be gone in the steps [start, end); `end` is the step that needs it back, or the number of
            steps.
        ready: the step after which the copy out may start, -1 for the start of the run; None where none is needed.
        back: whether a copy in precedes step `end`.
        before, after: numbers of the stays around it; None where it has none on that side within the run.
    """

    tensor: int
    start: int
    end: int
    ready: int | None
    back: bool
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Move:
    """A part with its times, in nanoseconds from the start of the run.

    Attributes:
        out_ns, in_ns: start and end of the copies; None without.
        released: the step before which the copy out has ended: from there on the bytes are free.
        fetched: the step before which the copy in is issued: from there on the bytes are taken.
    """

    part: Part
    out_ns: tuple[float, float] | None
    in_ns: tuple[float, float] | None
    released: int
    fetched: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Simulated run: moves, the start of each step, and the end, in nanoseconds."""

    moves: tuple[Move, ...]
    starts: tuple[float, ...]
    total_ns: float
    compute_ns: float

    @property
    def exposed_ns(self) -> float:
        """Time of the run in which no step runs, because a transfer has not ended."""
        return self.total_ns - self.compute_ns


@dataclass(frozen=True, slots=True)
class Home:
    """A buffer with a place on the host.

    Attributes:
        name: the original buffer's name; `tensors`: who lives in it.
        host_offset, nbytes: its place in the program's host memory.
        first, last: the buffer that holds it when a run begins, and when it has ended; None: the host does.
        persistent: whether its value lives from run to run.
        buffers: all buffers that hold it at some time, in that order.
    """

    name: str
    tensors: tuple[str, ...]
    memory_class: str
    host_offset: int
    nbytes: int
    first: int | None
    last: int | None
    persistent: bool
    updated: bool
    buffers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TransferRow:
    """One transfer of the schedule, for reports.

    Attributes:
        step: index of the transfer among the program's steps; `name`: its name.
        tensor: whose bytes; `direction`: "in" or "out".
        after, before: the steps around it: the last one that used the tensor, and the one that needs it next.
        start_ns, end_ns: predicted.
    """

    step: int
    name: str
    tensor: str
    direction: str
    nbytes: int
    after: str | None
    before: str | None
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What no schedule can beat, in nanoseconds; None where it was not computed."""

    compute_ns: int
    in_ns: int
    out_ns: int
    lp_ns: int | None = None
    lp_note: str | None = None


@dataclass(frozen=True, slots=True)
class Offload:
    """What a program with transfers knows of them.

    Attributes:
        mode: how it was planned.
        host_bytes: of its host memory.
        homes: the buffers that come and go.
        transfers: in issue order, with predicted times.
        dropped_bytes: bytes that left the device without a copy, since the host had them.
        predicted_ns, compute_ns: of a run, and of its steps alone.
        profile: where the times come from.
        rates: of the link.
        starts_ns, steps_ns: predicted start and time of each step that is no transfer.
    """

    mode: OffloadMode
    limit: int | None
    host_bytes: int
    homes: tuple[Home, ...]
    transfers: tuple[TransferRow, ...]
    in_bytes: int
    out_bytes: int
    dropped_bytes: int
    predicted_ns: int
    compute_ns: int
    profile: str
    rates: Rates
    starts_ns: tuple[int, ...] = ()
    steps_ns: tuple[int, ...] = ()
    bounds: Bounds | None = None
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def exposed_ns(self) -> int:
        """Predicted time in which no step runs."""
        return self.predicted_ns - self.compute_ns

    def home_of(self, tensor: str) -> Home | None:
        """The home of a tensor; None where it stays on the device."""
        return next((h for h in self.homes if tensor == h.name or tensor in h.tensors), None)
