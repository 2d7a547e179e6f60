"""What one kernel gets and does to memory: its exact launch arguments, and what is born and what dies at its steps."""

from __future__ import annotations

from collections.abc import Iterable

from kgrun.graphs.bound import BoundNode, Dim3, ScalarArgument, TensorArgument
from kgrun.graphs.errors import UsageError, did_you_mean
from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.explain import fused_text, turned_text
from kgrun.runtime.memory.explain_index import BufferRef, PlanIndex, StepRef, named
from kgrun.runtime.memory.explain_values import value_text
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import (
    ArrayRef,
    Clear,
    Copy,
    HostCall,
    Launch,
    LibraryCall,
    MemoryClass,
    Pointer,
    Program,
    Step,
    Transfer,
    Value,
    Work,
)


@dataclass(frozen=True, slots=True)
class ArgumentExplanation:
    """One argument, in the order in which the kernel takes them (S79).

    Attributes:
        kind: "tensor", "workspace", "value" or "null".
        role: what a host function or copy uses it for ("input 0", "target"), empty for a launch.
        tensors: names whose bytes start at this address; several where they share them.
        dtype, shape: of the tensor; of a value its type, where the graph says it.
        buffer, space, offset: where the address points: bytes from the start of the region.
        nbytes: bytes of the tensor, workspace or value.
        data: the bytes of a value; `value` is their reading.
    """

    position: int
    kind: str
    role: str = ""
    tensors: tuple[str, ...] = ()
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    buffer: str | None = None
    space: str | None = None
    offset: int | None = None
    nbytes: int = 0
    data: bytes | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class StepExplanation:
    """One step of a kernel.

    Attributes:
        work: "launch", "host function", "library call", "clear" or "copy".
        code: what it runs: the entry with its source, the library's routine.
        shared: dynamic shared memory, bytes.
        reads, writes: buffers; workspaces are among the writes and alone in `workspace`.
        waits_for: steps of other streams that must have run.
        live_bytes: aligned dynamic bytes taken while it runs, its workspace included.
        born, dies: dynamic buffers that first, and last, hold data here.
        at_peak: whether this step decides the height of the arena.
    """

    step: StepRef
    work: str
    code: str | None
    grid: Dim3 | None
    block: Dim3 | None
    shared: int
    cluster: Dim3 | None
    cooperative: bool
    arguments: tuple[ArgumentExplanation, ...]
    reads: tuple[BufferRef, ...]
    writes: tuple[BufferRef, ...]
    workspace: tuple[BufferRef, ...]
    waits_for: tuple[StepRef, ...]
    live_bytes: int
    born: tuple[BufferRef, ...]
    dies: tuple[BufferRef, ...]
    at_peak: bool


@dataclass(frozen=True, slots=True)
class KernelExplanation:
    """A node of the graph with its steps.

    Attributes:
        node, op: the node's name, and its operator or kernel.
        inputs, outputs: tensor names by position, None where an optional one is absent; absent inputs are dropped
            from the argument list.
        not_run: why the node runs nothing; `steps` is then empty.
        turned: by position of the inputs, the tensor that the file names there, where another is read in its place with
            its last two axes swapped; None elsewhere, empty where there is none.
    """

    node: str
    op: str
    stream: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    steps: tuple[StepExplanation, ...]
    not_run: str | None = None
    turned: tuple[str | None, ...] = ()


def explain_kernel(
    program: Program, plan: MemoryPlan, name: str, *, index: PlanIndex | None = None
) -> KernelExplanation:
    """Explain a node by its name, by the name of one of its steps, or by its kernel where no other node uses that.

    Raises:
        UsageError: KG259 where nothing has that name, KG241 where several nodes launch the kernel.
    """
    found = index or PlanIndex(program, plan)
    node, only = _find(program, name)
    steps = tuple(s for s in found.node_steps.get(node.index, ()) if only is None or s.index == only)
    return KernelExplanation(
        node=node.name,
        op=node.label,
        stream=node.stream,
        inputs=node.inputs,
        outputs=node.outputs,
        steps=tuple(_explain_step(found, node, step) for step in steps),
        not_run=None if steps else _why_not_run(program, node),
        turned=_turned_inputs(program, node),
    )


def _find(program: Program, name: str) -> tuple[BoundNode, int | None]:
    """The node meant by `name`, and the one step meant by it."""
    nodes = program.graph.nodes
    by_name = next((n for n in nodes if n.name == name), None)
    if by_name is not None:
        return by_name, None
    step = next((s for s in program.steps if s.name == name), None)
    if step is not None:
        return nodes[step.node], step.index
    users = [n for n in nodes if n.op == name]
    if len(users) == 1:
        return users[0], None
    if users:
        refs = [StepRef(n.index, n.name, n.op, n.stream) for n in users]
        raise UsageError(
            f"{len(users):,} kernels of the graph are {name!r}: name one of them",
            code="KG241",
            help=f"they are {named(refs, 5)}",
        )
    known = dict.fromkeys((*(n.name for n in nodes), *(s.name for s in program.steps)))
    raise UsageError(f"no kernel is named {name!r}", code="KG259", help=did_you_mean(name, known))


def _why_not_run(program: Program, node: BoundNode) -> str:
    if node.call is not None and node.call.outputs and all(t.value is not None for t in node.call.outputs):
        return "its results are known before the run"
    for output in node.written_names():
        if output in program.fused:
            return f"nothing is launched: {fused_text(program, output)}"
        if output in program.turned:
            return f"nothing is launched: {turned_text(program, output)}"
        slot = program.slots.get(output)
        reason = None if slot is None else (program.buffers[slot.buffer].shares or {}).get(output)
        if reason is not None:
            return f"nothing is launched: {output} is a {reason}"
    return "nothing is launched: its results have no elements, or no kernel needs them"


def _turned_inputs(program: Program, node: BoundNode) -> tuple[str | None, ...]:
    if node.call is None or not node.call.turned:
        return ()
    named = zip(program.inputs_in_file(node), node.inputs, strict=True)
    return tuple(name if name != read else None for name, read in named)


def _explain_step(index: PlanIndex, node: BoundNode, step: Step) -> StepExplanation:
    program, work = index.program, step.work
    launch = work if isinstance(work, Launch) else None
    touched = [index.placements[i] for i in dict.fromkeys((*step.reads, *step.writes)) if i in index.placements]
    dynamic = [p for p in touched if p.space == "dynamic"]
    scratch = [i for i in step.writes if program.buffers[i].memory_class is MemoryClass.WORKSPACE]

    def refs(indices: Iterable[int]) -> tuple[BufferRef, ...]:
        return tuple(index.buffer_ref(i) for i in indices)

    return StepExplanation(
        step=index.step_ref(step.index),
        work=_kind(work),
        code=_code(work),
        grid=launch.grid if launch else None,
        block=launch.block if launch else None,
        shared=launch.shared if launch else 0,
        cluster=launch.cluster if launch else None,
        cooperative=launch.cooperative if launch else False,
        arguments=tuple(_arguments(index, node, work)),
        reads=refs(step.reads),
        writes=refs(step.writes),
        workspace=refs(scratch),
        waits_for=tuple(index.step_ref(i) for i in step.after),
        live_bytes=index.live[step.index],
        born=refs(p.buffer for p in dynamic if p.first_step == step.index),
        dies=refs(p.buffer for p in dynamic if p.last_step == step.index),
        at_peak=index.peak == step.index,
    )


def _kind(work: Work) -> str:
    match work:
        case Launch():
            return "launch"
        case HostCall():
            return "host function"
        case LibraryCall():
            return "library call"
        case Clear():
            return "clear"
        case Copy():
            return "copy"
        case Transfer(direction):
            return "copy from the host" if direction == "in" else "copy to the host"


def _code(work: Work) -> str | None:
    match work:
        case Launch(code=code):
            return f"{code.entry} of {code.label} ({code.language})"
        case LibraryCall(library, routine):
            return f"{library} {routine}"
        case HostCall(function):
            return getattr(function, "__qualname__", None)
    return None


def _arguments(index: PlanIndex, node: BoundNode, work: Work) -> Iterable[ArgumentExplanation]:
    match work:
        case Launch(args=args):
            declared = node.launch.args if node.launch is not None and len(node.launch.args) == len(args) else ()
            for i, arg in enumerate(args):
                stated = declared[i] if declared else None
                kind = stated.type if isinstance(stated, ScalarArgument) else None
                own = stated.name if isinstance(stated, TensorArgument) else None
                yield _argument(index, node, i, arg, kind=kind, own=own)
        case LibraryCall(args=pointers):
            for i, pointer in enumerate(pointers):
                yield _argument(index, node, i, pointer)
        case HostCall(inputs=inputs, outputs=outputs):
            roles = [(f"input {i}", a) for i, a in enumerate(inputs)] + [
                (f"output {i}", a) for i, a in enumerate(outputs)
            ]
            names = (*node.inputs, *node.written_names())
            for i, ((role, array), name) in enumerate(zip(roles, names, strict=False)):
                yield _array_argument(index, node, i, array, role, name)
        case Clear(target, nbytes):
            yield _argument(index, node, 0, target, role="target", nbytes=nbytes)
        case Copy(target, source, nbytes):
            yield _argument(index, node, 0, target, role="target", nbytes=nbytes)
            yield _argument(index, node, 1, source, role="source", nbytes=nbytes)


def _argument(
    index: PlanIndex,
    node: BoundNode,
    position: int,
    argument: Pointer | Value | None,
    *,
    role: str = "",
    kind: str | None = None,
    own: str | None = None,
    nbytes: int | None = None,
) -> ArgumentExplanation:
    """One argument; `own` is the tensor that the graph names there, `kind` the type of a value."""
    if argument is None:
        return ArgumentExplanation(position, "null", role, tensors=(own,) if own else ())
    if isinstance(argument, Value):
        text = value_text(argument.data, kind)
        return ArgumentExplanation(
            position, "value", role, dtype=kind, nbytes=len(argument.data), data=argument.data, value=text
        )
    program = index.program
    buffer = program.buffers[argument.buffer]
    candidates = (own,) if own else tuple(dict.fromkeys((*node.read_names(), *node.written_names())))
    tensors = tuple(name for name in candidates if program.slots.get(name) == argument)
    place = index.placements.get(buffer.index)
    tensor = program.graph.tensors[tensors[0]] if tensors else None
    return ArgumentExplanation(
        position=position,
        kind="workspace" if buffer.memory_class is MemoryClass.WORKSPACE else "tensor",
        role=role,
        tensors=tensors,
        dtype=tensor.type.dtype if tensor else None,
        shape=tensor.type.shape if tensor else None,
        buffer=buffer.name,
        space=place.space if place else None,
        offset=place.offset + argument.offset if place else None,
        nbytes=nbytes if nbytes is not None else tensor.nbytes if tensor else max(buffer.nbytes - argument.offset, 0),
    )


def _array_argument(
    index: PlanIndex, node: BoundNode, position: int, array: ArrayRef | None, role: str, name: str | None
) -> ArgumentExplanation:
    if array is None:
        value = index.program.graph.tensors[name].type if name is not None else None
        return ArgumentExplanation(
            position, "null", role, tensors=(name,) if name else (),
            dtype=value.dtype if value else None, shape=value.shape if value else None,
        )  # fmt: skip
    return _argument(index, node, position, array.pointer, role=role, own=name)
