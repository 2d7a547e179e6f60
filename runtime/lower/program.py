"""Lower: number the buffers, turn each node into steps, and say what each step reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from kgrun.graphs.bound import BoundGraph, BoundNode
from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators import alias_of, lookup
from kgrun.runtime.lower.classes import AliasClasses, alias_classes
from kgrun.runtime.lower.sources import KernelSources
from kgrun.runtime.lower.turned import read_turned
from kgrun.runtime.lower.work import NodeWork, bind_work, prepare_node
from kgrun.runtime.program import (
    Buffer,
    Clear,
    Copy,
    MemoryClass,
    Pointer,
    Program,
    Step,
    Work,
)


def lower(
    bound: BoundGraph,
    target: str = "cuda",
    *,
    reuse: bool = True,
    views: bool = True,
    fuse: bool = False,
    sources: KernelSources | None = None,
) -> Program:
    """The program of `bound` for `target` ("cpu" or "cuda").

    Args:
        reuse: let kgrun grant in-place outputs that the file does not ask for.
        views: let a call be a view that only its sizes make one, and products read through Transposes; not where nodes
            are left out that may overwrite it, or that read it.
        fuse: let elementwise calls in a row be one kernel, see `fused`; nothing changes for the CPU.
        sources: kernel sources read already.

    Raises:
        GraphError: an in-place request that would destroy a value; a kernel source that cannot be read.
        DeviceUnavailable: an operator without a kernel for the target.
    """
    folded = frozenset(node.index for node in bound.nodes if _is_known(node))
    bound, turned = read_turned(bound, target, folded) if views else (bound, {})
    fused: dict[str, int] = {}
    if fuse and target == "cuda":
        from kgrun.runtime.lower.fused import fuse_elementwise  # only where it is asked for

        bound, fused = fuse_elementwise(bound, folded, frozenset(turned))
    classes = alias_classes(bound, reuse=reuse, views=views, folded=folded, unmade=frozenset({*turned, *fused}))
    lowering = _Lowering(bound, target, classes, folded, sources or KernelSources(bound.source))
    steps = tuple(lowering.steps())
    buffers = tuple(lowering.buffers)
    return Program(
        graph=bound,
        target=target,
        buffers=buffers,
        slots=lowering.slots,
        steps=steps,
        decisions=tuple(classes.decisions),
        groups=tuple(lowering.groups),
        warnings=bound.warnings,
        turned=turned,
        fused=fused,
    )


def pinned_name(tensor: str) -> str:
    """The slot of the static copy that `pin: true` keeps of a tensor."""
    return f"{tensor}.pinned"


def _is_known(node: BoundNode) -> bool:
    """Whether all results are known constants: a shape computation that need not run."""
    if node.call is None or node.inplace or not node.call.outputs:
        return False
    return all(kind.value is not None for kind in node.call.outputs)


class _Lowering:
    """Hands out buffers and steps in execution order."""

    def __init__(
        self,
        bound: BoundGraph,
        target: str,
        classes: AliasClasses,
        folded: frozenset[int],
        sources: KernelSources,
    ) -> None:
        self.bound, self.target, self.classes, self.folded = bound, target, classes, folded
        self.buffers: list[Buffer] = []
        self.slots: dict[str, Pointer] = {}
        self.groups: list[tuple[int, ...]] = []
        self.sources = sources
        self._add_tensor_buffers()
        self._add_groups()

    def _add_tensor_buffers(self) -> None:
        runs = [n for n in self.bound.nodes if n.index not in self.folded and n.index not in self.classes.forwarded]
        touched = {name for node in runs for name in _device_operands(node)}
        outside = {name for name in self.bound.outputs if self.bound.tensors[name].producer is None}
        wanted = {*self.bound.outputs} - (outside - self.bound.fed)  # what is given is on the host anyway
        for owner, members in self.classes.members.items():
            if touched.isdisjoint(members) and wanted.isdisjoint(members):
                continue
            spec = self.bound.tensors[owner].spec
            if spec is not None and not spec.valid:
                continue  # a masked input position gets no memory; kernels get a null pointer (S15)
            index = len(self.buffers)
            tensors = [self.bound.tensors[m] for m in members]
            specs = [t.spec for t in tensors if t.spec is not None]
            nodes = [self.bound.nodes[t.producer] for t in tensors if t.producer is not None]
            self.buffers.append(
                Buffer(
                    index=index,
                    name=owner,
                    nbytes=max(t.nbytes for t in tensors),
                    memory_class=self._memory_class(members),
                    tensors=tuple(members),
                    lifelong=any(s.lifelong for s in specs),
                    no_reuse=any(s.no_reuse for s in specs) or any(n.spec.no_reuse for n in nodes),
                    shares={m: self.classes.reasons[m] for m in members if m in self.classes.reasons} or None,
                )
            )
            self.slots.update(dict.fromkeys(members, Pointer(index)))

    def _memory_class(self, members: list[str]) -> MemoryClass:
        tensors = [self.bound.tensors[m] for m in members]
        external = next((t for t in tensors if t.producer is None), None)
        if external is not None:
            return MemoryClass(external.role)
        if any(t.producer in self.folded for t in tensors):
            return MemoryClass.CONSTANT  # loaded once, also where it is a graph output
        if any(t.is_output for t in tensors):
            return MemoryClass.OUTPUT
        touching = {i for t in tensors for i in (*t.consumers, *(() if t.producer is None else (t.producer,)))}
        if any(self.bound.nodes[i].collective is not None for i in touching):
            return MemoryClass.COMMUNICATION
        return MemoryClass.INTERMEDIATE

    def _add_groups(self) -> None:
        """Contiguous groups: the file's, then inputs and outputs of collectives (S57)."""
        wanted = [self._apart(g, group) for g, group in enumerate(self.bound.source.contiguous)]
        for node in self.bound.nodes:
            if node.collective is not None and node.collective.contiguous:
                wanted += [node.read_names(), node.written_names()]
        grouped: set[int] = set()
        for names in wanted:
            members = tuple(dict.fromkeys(self.slots[n].buffer for n in names if n in self.slots))
            # A buffer stands in one group at most: the first that names it (S57).
            if len(members) > 1 and grouped.isdisjoint(members):
                grouped.update(members)
                self.groups.append(members)

    def _apart(self, position: int, group: Sequence[str]) -> tuple[str, ...]:
        """A group of the file, whose members cannot stand side by side where one lies in the bytes of another."""
        seen: dict[int, str] = {}
        for i, name in enumerate(group):
            if name not in self.slots:
                continue
            other = seen.setdefault(self.slots[name].buffer, name)
            if other != name:
                why = self.classes.reasons.get(name) or self.classes.reasons[other]
                raise GraphError(
                    f"{name!r} and {other!r} of a contiguous group share their bytes ({why})",
                    code="KG355",
                    where=self.bound.source.place("contiguous", position, i),
                    help="name one of them",
                )
        return tuple(group)

    def steps(self) -> Iterator[Step]:
        """All steps in issue order."""
        index = 0
        last_step: dict[int, int] = {}
        for node in self.bound.nodes:
            runs = node.index not in self.folded and node.index not in self.classes.forwarded
            made = [*(self._node_work(node) if runs else ()), *self._pins(node)]
            for part, (name, work, scratch) in enumerate(made):
                reads, writes = self._touched(node, work, scratch)
                yield Step(
                    index=index,
                    name=name,
                    node=node.index,
                    op=node.label,
                    stream=node.stream,
                    work=work,
                    reads=reads,
                    writes=writes,
                    after=self._after(node, last_step) if part == 0 else (),
                    flops=self._flops(node) if part == len(made) - 1 else None,
                    nbytes=self._nbytes(node) if part == len(made) - 1 else None,
                )
                index += 1
            if made:
                last_step[node.index] = index - 1

    def _node_work(self, node: BoundNode) -> list[tuple[str, Work, tuple[Pointer, ...]]]:
        if (
            node.call is not None
            and node.outputs
            and all(prod(self.bound.tensors[name].type.shape) == 0 for name in node.written_names())
        ):
            return []
        alias = alias_of(node.call)
        items: list[Work] = [] if alias is None else self._view_copy(node, alias)
        runs = alias is None or _has_further_outputs(node)
        work = prepare_node(node, self.target, self.sources) if runs else NodeWork()
        scratch = tuple(self._add_workspace(node, i, nbytes) for i, nbytes in enumerate(work.workspace))
        spare = self._unwanted_outputs(node, len(scratch)) if runs else {}
        clears: list[Work] = [
            Clear(self.slots[name], self.bound.tensors[name].nbytes)
            for name in node.clear
            if name not in self.classes.reasons  # a view is full already
        ]
        if runs:
            clears += [Clear(scratch[i], node.workspace[i]) for i in node.cleared_workspace]
            items += bind_work(self.bound, node, work, self.slots, scratch, spare)
        scratch += tuple(spare.values())
        named: list[tuple[str, Work]] = [(f"{node.name}.clear", clear) for clear in clears]
        named += [(node.name if len(items) == 1 else f"{node.name}.{i}", item) for i, item in enumerate(items)]
        return [(name, item, scratch) for name, item in named]

    def _pins(self, node: BoundNode) -> Iterator[tuple[str, Work, tuple[Pointer, ...]]]:
        """A static copy of each pinned result, which outlives the run (S38)."""
        for name in node.written_names():
            tensor = self.bound.tensors[name]
            if tensor.spec is None or not tensor.spec.pin or name not in self.slots or tensor.nbytes == 0:
                continue
            index = len(self.buffers)
            self.buffers.append(Buffer(index, pinned_name(name), tensor.nbytes, MemoryClass.OUTPUT))
            self.slots[pinned_name(name)] = Pointer(index)
            yield pinned_name(name), Copy(Pointer(index), self.slots[name], tensor.nbytes), ()

    def _view_copy(self, node: BoundNode, alias: int) -> list[Work]:
        """What gives a view that owns its memory (S33) its bytes; nothing where it shares them."""
        source, output = node.inputs[alias], node.outputs[0]
        assert source is not None
        if output is None or self.slots[output] == self.slots[source]:
            return []
        return [Copy(self.slots[output], self.slots[source], self.bound.tensors[output].nbytes)]

    def _unwanted_outputs(self, node: BoundNode, first: int) -> dict[int, Pointer]:
        """Scratch for the outputs of an operator that nobody names: its kernels write all of them."""
        if node.call is None:
            return {}
        absent = [i for i, name in enumerate(node.outputs) if name is None]
        return {i: self._add_workspace(node, first + k, node.call.outputs[i].nbytes) for k, i in enumerate(absent)}

    def _add_workspace(self, node: BoundNode, i: int, nbytes: int) -> Pointer:
        index = len(self.buffers)
        self.buffers.append(Buffer(index, f"{node.name}.workspace[{i}]", nbytes, MemoryClass.WORKSPACE))
        return Pointer(index)

    def _touched(
        self, node: BoundNode, work: Work, scratch: tuple[Pointer, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if isinstance(work, Clear):
            return (), (work.target.buffer,)
        if isinstance(work, Copy):
            return (work.source.buffer,), (work.target.buffer, *(pointer.buffer for pointer in scratch))
        made = set(node.outputs)
        reads = [self.slots[n].buffer for n in _device_operands(node) if n in self.slots and n not in made]
        alias = alias_of(node.call)
        shared = node.inputs[alias] if alias is not None else None  # a view's output 0 has its bytes already
        writes = [
            self.slots[n].buffer
            for i, n in enumerate(node.outputs)
            if n in self.slots and not (i == 0 and shared in self.slots and self.slots[n] == self.slots[shared])
        ]
        # Scratch is held from a node's first step to its last, whichever of them address it.
        writes += [pointer.buffer for pointer in scratch]
        return tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes))

    def _after(self, node: BoundNode, last_step: Mapping[int, int]) -> tuple[int, ...]:
        """Last steps of the nodes on other streams that must have run, found through nodes that run nothing."""
        found: set[int] = set()
        stack, seen = list(node.predecessors), set(node.predecessors)
        while stack:
            before = self.bound.nodes[stack.pop()]
            if before.index in last_step:
                if before.stream != node.stream:
                    found.add(last_step[before.index])
                continue
            new = set(before.predecessors) - seen
            seen |= new
            stack.extend(new)
        return tuple(sorted(found))

    def _flops(self, node: BoundNode) -> int | None:
        if node.flops is not None or node.call is None:
            return node.flops
        calls = (node.call,) if node.call.fused is None else node.call.fused.calls
        costs = [(lookup(call.op).flops, call) for call in calls]
        found = [cost(call) for cost, call in costs if cost is not None]
        return sum(found) if len(found) == len(costs) else None

    def _nbytes(self, node: BoundNode) -> int:
        if node.bytes is not None:
            return node.bytes
        names = dict.fromkeys((*_device_operands(node), *node.written_names()))
        return sum(prod(kind.shape) * itemsize(kind.dtype) for kind in (self.bound.tensors[n].type for n in names))


def _has_further_outputs(node: BoundNode) -> bool:
    """Whether anything but output 0 is wanted: a view that has such outputs runs to make them."""
    return any(name is not None for name in node.outputs[1:])


def _device_operands(node: BoundNode) -> list[str]:
    """Names of inputs and outputs that the node's kernel touches: not the inputs only looked at while binding."""
    host = lookup(node.op).host_inputs if node.call is not None else frozenset()
    inputs = [name for i, name in enumerate(node.inputs) if name is not None and i not in host]
    return list(dict.fromkeys([*inputs, *node.written_names()]))
