"""What an eager run did, as the values that reports are made of: a program of the steps that ran, and their memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kgrun.graphs.bound import BoundGraph, BoundNode, BoundTensor, Warning
from kgrun.graphs.operators.base import TensorType
from kgrun.graphs.schema.kinds import is_op
from kgrun.runtime.devices.base import Device
from kgrun.runtime.memory.alignment import held_bytes
from kgrun.runtime.memory.plan_types import UNPLANNED, MemoryPlan, Placement
from kgrun.runtime.pointers import moved
from kgrun.runtime.program import (
    Buffer,
    HostCall,
    MemoryClass,
    Pointer,
    Program,
    Step,
)

if TYPE_CHECKING:
    from kgrun.runtime.eager.body import Body, NodeProgram
    from kgrun.runtime.eager.frame import Frame
    from kgrun.runtime.eager.store import Block, Store, Tensor

_MOST_MARKS = 4096  # kept before they are turned into samples
_MOST_SPANS = 100_000  # of the timeline


@dataclass(slots=True)
class Row:
    """One step by name; a step of a loop's body is one row, however often it runs.

    Attributes:
        program: what it was lowered to last, with the buffers of `names`.
        top: position in the file of the node of the whole graph it belongs to.
    """

    index: int
    step: Step
    program: NodeProgram
    names: tuple[str, ...]
    top: int
    method: str
    samples: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Held:
    """A buffer as the report shows it: the largest that had this name."""

    nbytes: int
    memory_class: MemoryClass
    address: int
    first: int
    last: int
    tensors: dict[str, None] = field(default_factory=dict)


class Recorder:
    """Remembers steps, their times and their buffers."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.rows: dict[str, Row] = {}
        self.held: dict[str, Held] = {}
        self.types: dict[str, TensorType] = {}
        self.timeline: list[tuple[int, int, int]] = []
        self._marks: list[tuple[Row, Any, Any]] = []
        self._origin: Any = None

    def start_run(self) -> None:
        """Begin a new timeline."""
        self.settle()
        self.timeline.clear()
        self._origin = None

    def launched(
        self,
        frame: Frame,
        program: NodeProgram,
        step: Step,
        blocks: Sequence[Block],
        method: str,
        start: Any,
        end: Any,
    ) -> None:
        """A step was issued between two marks."""
        name = frame.path + step.name
        row = self.rows.get(name)
        if row is None or row.program is not program or row.names != tuple(b.name for b in blocks):
            row = self._row(name, frame, program, step, blocks, method)
        self._mark(row, start, end)

    def on_host(
        self,
        frame: Frame,
        program: NodeProgram,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor | None],
        start: Any,
        end: Any,
    ) -> None:
        """An operator ran on the host."""
        read = [t.block for t in inputs if t is not None]
        made = [t.block for t in outputs if t is not None]
        node = program.node
        blocks = [*read, *made]
        step = Step(
            0, node.name, 0, node.op, "compute", HostCall(_ran, (), ()), tuple(range(len(read))),
            tuple(range(len(read), len(blocks))), nbytes=sum(b.nbytes for b in blocks),
        )  # fmt: skip
        row = self._row(frame.path + node.name, frame, program, step, blocks, "host clock")
        self._mark(row, start, end)

    def _row(
        self, name: str, frame: Frame, program: NodeProgram, step: Step, blocks: Sequence[Block], method: str
    ) -> Row:
        names = tuple(block.name for block in blocks)
        row = self.rows.get(name)
        if row is None:
            row = self.rows[name] = Row(len(self.rows), step, program, names, frame.top, method)
        row.step, row.program, row.names, row.method = step, program, names, method
        touched = {*step.reads, *step.writes}
        for index, block in enumerate(blocks):
            if index in touched and block.nbytes and block.address is not None:
                self._hold(block, row.index)
        return row

    def _hold(self, block: Block, index: int) -> None:
        held = self.held.get(block.name)
        assert block.address is not None
        if held is None:
            self.held[block.name] = Held(block.nbytes, block.memory_class, block.address, index, index)
            return
        if block.nbytes > held.nbytes:
            held.nbytes, held.address = block.nbytes, block.address
        held.first, held.last = min(held.first, index), max(held.last, index)

    def _mark(self, row: Row, start: Any, end: Any) -> None:
        if self._origin is None:
            self._origin = start
        self._marks.append((row, start, end))
        if len(self._marks) >= _MOST_MARKS:
            self.settle()

    def settle(self) -> None:
        """Turn marks into samples; waits for the steps."""
        elapsed = self._device.elapsed_ns
        for row, start, end in self._marks:
            took = elapsed(start, end)
            row.samples.append(took)
            if len(self.timeline) < _MOST_SPANS:
                self.timeline.append((row.index, elapsed(self._origin, start), took))
        self._marks.clear()

    def forget_times(self) -> None:
        """Drop the samples of runs that do not count."""
        self.settle()
        for row in self.rows.values():
            row.samples.clear()

    def program(self, body: Body, target: str, warnings: tuple[Warning, ...]) -> Program:
        """The steps that ran, in the order in which they first did, over the buffers they touched."""
        bound = _bound(body, self, warnings)
        index_of = {name: i for i, name in enumerate(self.held)}
        node_of = {node.position: node.index for node in bound.nodes}
        buffers = tuple(
            Buffer(i, name, held.nbytes, held.memory_class, (name,) if name in bound.tensors else ())
            for i, (name, held) in enumerate(self.held.items())
        )
        steps = tuple(self._step(name, row, index_of, node_of) for name, row in self.rows.items())
        slots = {name: Pointer(i) for name, i in index_of.items() if name in bound.tensors}
        return Program(bound, target, buffers, slots, steps, warnings=warnings)

    def _step(self, name: str, row: Row, index_of: Mapping[str, int], node_of: Mapping[int, int]) -> Step:
        def there(local: int) -> int:
            return index_of.get(row.names[local], 0)

        def all_there(indices: Sequence[int]) -> tuple[int, ...]:
            return tuple(dict.fromkeys(index_of[row.names[i]] for i in indices if row.names[i] in index_of))

        step = row.step
        return replace(
            step, index=row.index, name=name, node=node_of[row.top], stream="compute", after=(),
            work=moved(step.work, lambda p: Pointer(there(p.buffer), p.offset)),
            reads=all_there(step.reads), writes=all_there(step.writes),
        )  # fmt: skip

    def plan(self, store: Store) -> MemoryPlan:
        """Memory as the last run took it: `peak_bytes` is the most that was in use at once.

        Outputs are static once they are made; their bytes serve others before, so these may all be in use at another
        time than the most dynamic ones.
        """
        usage, lowest = store.usage, store.lowest or 0
        dynamic = max(usage.most - usage.static, 0)
        last = max(len(self.rows) - 1, 0)
        placements = []
        for index, (name, held) in enumerate(self.held.items()):
            static = held.memory_class.static
            placements.append(
                Placement(
                    index, name, held.memory_class, "static" if static else "dynamic", held.address - lowest,
                    held.nbytes, held_bytes(held.nbytes), 0 if static else held.first, last if static else held.last,
                )
            )  # fmt: skip
        return MemoryPlan(
            placements=tuple(placements), static_bytes=usage.static, dynamic_bytes=dynamic,
            lower_bound_bytes=dynamic, no_reuse_bytes=usage.taken, optimal=True, planner=UNPLANNED, plan_ns=0,
            peak_step=None, note="as the run took it: nothing was planned",
        )  # fmt: skip


def _ran(inputs: object, outputs: object) -> None:
    """Stands in a report for what ran on the host."""


def _bound(body: Body, recorder: Recorder, warnings: tuple[Warning, ...]) -> BoundGraph:
    """The whole graph with the types that the run found."""
    links, graph = body.links, body.graph
    index_of = {position: index for index, position in enumerate(links.order)}
    ran = {row.top: row.program.node for row in recorder.rows.values()}
    nodes = []
    for index, position in enumerate(links.order):
        spec = graph.nodes[position]
        before = tuple(sorted(index_of[p] for p in links.predecessors[position]))
        found = ran.get(position)
        if found is not None and found.spec is spec:
            nodes.append(replace(found, index=index, predecessors=before))
            continue
        op = spec.op if is_op(spec) else spec.kernel
        nodes.append(
            BoundNode(
                index, position, spec.name, op, links.inputs[position], tuple(spec.outputs), None, None, (), (),
                spec.inplace, tuple(spec.clear), before, None, None, spec,
            )
        )  # fmt: skip
    types = {**{name: tensor.type for name, tensor in body.statics.items()}, **recorder.types}
    tensors = {}
    for name, kind in types.items():
        producer = links.producer.get(name)
        static = body.statics.get(name)
        tensors[name] = BoundTensor(
            name=name,
            role=body.role(name) if static is not None else "intermediate",
            type=kind,
            producer=None if producer is None else index_of[producer],
            consumers=tuple(sorted(index_of[p] for p in links.readers.get(name, ()))),
            is_output=name in body.output_at,
            spec=graph.tensors.get(name),
        )
    return BoundGraph(graph, body.dims, tensors, tuple(nodes), body.outputs, warnings)
