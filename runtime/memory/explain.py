"""Why a tensor lives where it does: its class, its life, who shares its bytes, or why nobody can."""

from __future__ import annotations

from kgrun.graphs.bound import BoundTensor
from kgrun.graphs.errors import UsageError, did_you_mean
from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.explain_index import PlanIndex, StepRef
from kgrun.runtime.memory.plan_types import MemoryPlan, Placement
from kgrun.runtime.program import Buffer, Decision, MemoryClass, Pointer, Program
from kgrun.runtime.streams import plan_streams

_NAMED = 10  # of a tensor's readers, in one line


@dataclass(frozen=True, slots=True)
class AliasMember:
    """A tensor of the same alias class: same bytes by design. `reason` is None for the one that owns them."""

    name: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Sharer:
    """A buffer that uses some of the same bytes at another time.

    Attributes:
        shared_bytes: bytes that both use.
        first, last: steps of its life.
    """

    name: str
    memory_class: str
    shared_bytes: int
    first: StepRef
    last: StepRef


@dataclass(frozen=True, slots=True)
class TensorExplanation:
    """Everything the plan knows of one tensor, or of one workspace.

    Attributes:
        dtype, shape, nbytes: of the tensor; dtype and shape are None for a workspace.
        role: what the graph calls it; "workspace" for a workspace.
        no_memory: why it has no device memory; the fields of the buffer are then None or empty.
        buffer, buffer_nbytes, aligned: the alias class it lives in, bytes needed and bytes held.
        offset: bytes from the start of `space` ("static" or "dynamic").
        first, last: the life of the buffer, None where the graph runs no step.
        written_by, read_by: steps that write and read this tensor itself, in issue order.
        alias_class: all tensors of the buffer, in the order they joined; longer than one where they share by design.
        before, after: buffers that had or get some of these bytes, the nearest in time first.
        alone_because: why no other buffer uses these bytes; None where one does.
        inplace: in-place requests this tensor takes part in, granted or refused.
        at_peak: whether its bytes are taken at the step that decides the arena's height.
        peak: that step.
    """

    name: str
    role: str
    dtype: str | None
    shape: tuple[int, ...] | None
    nbytes: int
    no_memory: str | None = None
    memory_class: str | None = None
    buffer: str | None = None
    buffer_nbytes: int = 0
    aligned: int = 0
    space: str | None = None
    offset: int | None = None
    first: StepRef | None = None
    last: StepRef | None = None
    written_by: tuple[StepRef, ...] = ()
    read_by: tuple[StepRef, ...] = ()
    alias_class: tuple[AliasMember, ...] = ()
    before: tuple[Sharer, ...] = ()
    after: tuple[Sharer, ...] = ()
    alone_because: str | None = None
    inplace: tuple[Decision, ...] = ()
    at_peak: bool = False
    peak: StepRef | None = None


def explain_tensor(
    program: Program, plan: MemoryPlan, name: str, *, index: PlanIndex | None = None
) -> TensorExplanation:
    """Explain a tensor or a workspace (`node.workspace[i]`) by name. `index` saves work over many names.

    Raises:
        UsageError: KG259 where nothing has that name.
    """
    found = index or PlanIndex(program, plan)
    tensor = program.graph.tensors.get(name)
    buffer = _buffer_of(program, name)
    if tensor is None and buffer is None:
        known = [*program.graph.tensors, *(b.name for b in program.buffers if not b.tensors)]
        raise UsageError(f"no tensor is named {name!r}", code="KG259", help=did_you_mean(name, known))
    place = None if buffer is None else found.placements.get(buffer.index)
    role, dtype, shape, nbytes = _identity(tensor, buffer)
    written, read = _users(found, tensor, buffer)
    requests = tuple(d for d in program.decisions if name in (d.output, d.input))
    if buffer is None or place is None:
        why = _why_no_memory(tensor, buffer)
        if name in program.fused:
            why, read = fused_text(program, name), _reader_within(found, name)
        elif name in program.turned:
            why, read = turned_text(program, name), _turned_readers(found, name)
        return TensorExplanation(
            name, role, dtype, shape, nbytes, why, written_by=written, read_by=read, inplace=requests
        )
    peak = found.peak
    first, last = found.span(place)
    before, after = _sharers(found, place)
    steps = len(program.steps)
    return TensorExplanation(
        name=name, role=role, dtype=dtype, shape=shape, nbytes=nbytes,
        memory_class=str(buffer.memory_class), buffer=buffer.name, buffer_nbytes=buffer.nbytes, aligned=place.aligned,
        space=place.space, offset=place.offset + program.slots.get(name, Pointer(buffer.index)).offset,
        first=found.step_ref(place.first_step) if steps else None,
        last=found.step_ref(place.last_step) if steps else None,
        written_by=written, read_by=read,
        alias_class=tuple(AliasMember(m, (buffer.shares or {}).get(m)) for m in buffer.tensors),
        before=before, after=after,
        alone_because=None if before or after else why_alone(found, buffer, place),
        inplace=requests,
        at_peak=peak is not None and place.space == "dynamic" and first <= peak <= last,
        peak=None if peak is None else found.step_ref(peak),
    )  # fmt: skip


def _buffer_of(program: Program, name: str) -> Buffer | None:
    if name in program.slots:
        return program.buffers[program.slots[name].buffer]
    if name in program.graph.tensors:
        return None
    return next((b for b in program.buffers if b.name == name), None)


def _identity(tensor: BoundTensor | None, buffer: Buffer | None) -> tuple[str, str | None, tuple[int, ...] | None, int]:
    if tensor is not None:
        return str(tensor.role), tensor.type.dtype, tensor.type.shape, tensor.nbytes
    assert buffer is not None
    return str(buffer.memory_class), None, None, buffer.nbytes


def _users(
    index: PlanIndex, tensor: BoundTensor | None, buffer: Buffer | None
) -> tuple[tuple[StepRef, ...], tuple[StepRef, ...]]:
    """Steps that write and that read a tensor; those of a workspace's node both write and read it."""
    if buffer is None:
        return (), ()
    if tensor is None:
        steps = tuple(index.step_ref(i) for i in index.touches[buffer.index])
        return steps, steps
    made = () if tensor.producer is None else index.node_steps.get(tensor.producer, ())
    offload = index.program.offload
    home = None if offload is None else offload.home_of(buffer.name.partition("@")[0])
    own = {buffer.index} if home is None else set(home.buffers)  # it may come back to other bytes
    written = tuple(index.step_ref(s.index) for s in made if not own.isdisjoint(s.writes))
    readers = (s for node in tensor.consumers for s in index.node_steps.get(node, ()))
    return written, tuple(index.step_ref(s.index) for s in readers if not own.isdisjoint(s.reads))


def _why_no_memory(tensor: BoundTensor | None, buffer: Buffer | None) -> str:
    if buffer is not None and buffer.nbytes == 0:
        return "it has no elements"
    if tensor is not None and tensor.type.value is not None and not tensor.used:
        return "its value is known before the run and no kernel reads it on the device"
    return "no step reads or writes it on the device"


def turned_text(program: Program, name: str) -> str:
    """Where the readers of a tensor that no step makes find its elements: `mm reads w as input 1, …`."""
    turned = program.turned[name]
    readers = [f"{program.graph.nodes[node].name} as input {position}" for node, position in turned.readers]
    more = f" and {len(readers) - _NAMED:,} more" if len(readers) > _NAMED else ""
    return f"{turned.source} is read in its place, last two axes swapped, by {', '.join(readers[:_NAMED])}{more}"


def fused_text(program: Program, name: str) -> str:
    """Which kernel computes a tensor that is not stored."""
    node = program.graph.nodes[program.fused[name]]
    return f"{node.name} computes {name} itself: elementwise calls in a row are fused"


def _reader_within(index: PlanIndex, name: str) -> tuple[StepRef, ...]:
    """The step that computes a tensor which is not stored, and alone reads it; what pins its result does not."""
    return tuple(index.step_ref(step.index) for step in index.node_steps.get(index.program.fused[name], ())[:1])


def _turned_readers(index: PlanIndex, name: str) -> tuple[StepRef, ...]:
    nodes = dict.fromkeys(node for node, _ in index.program.turned[name].readers)
    return tuple(index.step_ref(step.index) for node in nodes for step in index.node_steps.get(node, ()))


def _sharers(index: PlanIndex, place: Placement) -> tuple[tuple[Sharer, ...], tuple[Sharer, ...]]:
    if place.space == "static":
        return (), ()
    low, high = place.offset, place.offset + place.aligned
    before: list[tuple[int, Placement]] = []
    after: list[tuple[int, Placement]] = []
    for other in index.plan.placements:
        if other.space != "dynamic" or other.buffer == place.buffer:
            continue
        if other.offset < high and low < other.offset + other.aligned:
            earlier = other.last_step < place.first_step
            distance = place.first_step - other.last_step if earlier else other.first_step - place.last_step
            (before if earlier else after).append((distance, other))

    def named(found: list[tuple[int, Placement]]) -> tuple[Sharer, ...]:
        found.sort(key=lambda pair: (pair[0], pair[1].offset))
        return tuple(_sharer(index, other, low, high) for _, other in found)

    return named(before), named(after)


def _sharer(index: PlanIndex, other: Placement, low: int, high: int) -> Sharer:
    shared = min(high, other.offset + other.aligned) - max(low, other.offset)
    first, last = index.step_ref(other.first_step), index.step_ref(other.last_step)
    return Sharer(other.name, str(other.memory_class), shared, first, last)


def why_alone(index: PlanIndex, buffer: Buffer, place: Placement) -> str:
    """Why no other buffer uses the bytes of one that has a place."""
    if place.space == "static":
        return _why_static(index, buffer)
    if buffer.no_reuse:
        return "no_reuse: it was asked to share its bytes with no other buffer"
    if buffer.lifelong:
        return "lifelong: it keeps its bytes for the whole run"
    if index.plan.planner == "none":
        return "reuse is off: every buffer has its own bytes"
    others = [p for p in index.dynamic if p.buffer != place.buffer]
    if not others:
        return "there is no other dynamic buffer"
    apart = [p for p in others if not index.program.buffers[p.buffer].no_reuse and _apart(index, p, place)]
    free = _ordered(index, place, apart)
    if apart and not free:
        return (
            f"conflicts: {len(apart):,} of the {len(others):,} other dynamic buffers come before or after it in the "
            f"list, but on other streams, and nothing makes one wait for the end of the other"
        )
    if not free:
        return f"conflicts: each of the {len(others):,} other dynamic buffers holds data during its life"
    largest = max(free, key=lambda p: p.aligned)
    proof = "the arena is as low as it can be without that" if index.plan.optimal else "the planner found no use for it"
    return (
        f"{len(free):,} of {len(others):,} dynamic buffers live at other times, the largest {largest.name} with "
        f"{largest.aligned:,} bytes, but each found room elsewhere; {proof}"
    )


def _ordered(index: PlanIndex, place: Placement, others: list[Placement]) -> list[Placement]:
    """Those whose last steps have ended before its first ones start, or the other way round (S58)."""
    if len({step.stream for step in index.program.steps}) < 2:
        return others
    streams = plan_streams(index.program)

    def ends(p: Placement) -> tuple[list[int], list[int]]:
        """The first and the last step of each stream that touch the buffer."""
        touches = index.touches[p.buffer]
        first = {streams.stream_of[t]: t for t in reversed(touches)}
        return list(first.values()), list({streams.stream_of[t]: t for t in touches}.values())

    first, last = ends(place)

    def apart(other: Placement) -> bool:
        starts, stops = ends(other)
        before = all(streams.precedes(a, b) for a in last for b in starts)
        return before or all(streams.precedes(a, b) for a in stops for b in first)

    return [p for p in others if apart(p)]


def _why_static(index: PlanIndex, buffer: Buffer) -> str:
    if buffer.static:
        reason = {
            MemoryClass.INPUT: "the caller fills it before each run",
            MemoryClass.OUTPUT: "the caller reads it after the run",
        }.get(buffer.memory_class, "every run reads it again")
        return f"static: {_article(str(buffer.memory_class))} keeps its bytes for the session, since {reason}"
    for group in index.program.groups:
        if buffer.index in group:
            owner = next((i for i in group if index.program.buffers[i].static), None)
            if owner is not None:
                other = index.program.buffers[owner]
                return (
                    f"static: it stands in one contiguous group with {other.name}, {_article(str(other.memory_class))}"
                )
    return "static: it keeps its bytes for the session"


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _apart(index: PlanIndex, a: Placement, b: Placement) -> bool:
    (first, last), (other_first, other_last) = index.span(a), index.span(b)
    return last < other_first or other_last < first
