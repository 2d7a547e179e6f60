"""One graph or body, ready to be run node by node: order, uses, and what each node was lowered to for which types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kgrun.graphs.bind.checks import check_sizes, node_faults
from kgrun.graphs.bind.graph import DEFAULT_ARCH, Binder
from kgrun.graphs.bind.links import link
from kgrun.graphs.bind.tensors import role_of
from kgrun.graphs.bound import BoundGraph, BoundNode, BoundTensor
from kgrun.graphs.control import body_graph, body_names, captured, formal_inputs, is_control
from kgrun.graphs.errors import GraphError, did_you_mean
from kgrun.graphs.expressions import Expression, evaluate
from kgrun.graphs.operators import lookup
from kgrun.graphs.operators.base import TensorType
from kgrun.graphs.schema.kinds import is_op
from kgrun.runtime.eager.store import Tensor
from kgrun.runtime.kernels.base import DynamicFunction, dynamic_kernel
from kgrun.runtime.lower import lower
from kgrun.runtime.lower.program import pinned_name
from kgrun.runtime.lower.sources import KernelSources
from kgrun.runtime.program import Program

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.graphs.schema.tensors import Role
    from kgrun.runtime.devices.base import PreparedStep

Types = tuple[TensorType | None, ...]
_MOST_PROGRAMS = 256  # kept of one node: as many sets of types
_MOST_PREPARED = 8  # kept of one program: as many sets of addresses


@dataclass(slots=True, eq=False)
class NodeProgram:
    """A node lowered for the exact types of its inputs.

    Attributes:
        program: the node alone, its inputs and outputs as buffers; without steps where all is known or a view.
        types: of the outputs, None for those that nobody names.
        sources: by buffer of `program`: the position of the input whose bytes it is; None for fresh bytes.
        places: by output: the buffer it lives in; None for one that lives nowhere.
        overwrites: buffers of inputs that its steps write.
        touched: by buffer: whether its steps read or write it; the others need no bytes on the device.
        pins: outputs of which a static copy is kept, with the buffer of the copy (S38).
        dynamic: what makes the outputs where their shapes depend on elements: host arrays in, host arrays out.
        prepared: its steps packed, by the addresses of the buffers.
    """

    node: BoundNode
    program: Program
    types: Types
    sources: tuple[int | None, ...]
    places: tuple[int | None, ...]
    overwrites: tuple[int, ...] = ()
    touched: tuple[bool, ...] = ()
    pins: tuple[tuple[str, int], ...] = ()
    dynamic: DynamicFunction | None = None
    prepared: dict[tuple[int, ...], list[PreparedStep]] = field(default_factory=dict)

    def keep(self, addresses: tuple[int, ...], steps: list[PreparedStep]) -> None:
        """Remember packed steps, and forget the oldest."""
        if len(self.prepared) >= _MOST_PREPARED:
            del self.prepared[next(iter(self.prepared))]
        self.prepared[addresses] = steps


class Body:
    """A graph whose nodes are bound one by one, when the types of their inputs are known.

    Args:
        graph: the whole, or a body of it as a graph of its own.
        formals: names that the caller gives values to, in order.
        dims: values of the dimensions.
        target: "cpu" or "cuda", and the architecture whose launch limits hold.

    Attributes:
        uses: how often each name is read: once a node, and once more where it is an output.
        statics: parameters, constants and inputs of its own, made when first read.

    Raises:
        GraphError: what `link` finds wrong, and names that nothing defines.
    """

    def __init__(
        self,
        graph: KernelGraph,
        formals: Sequence[str],
        dims: Mapping[str, int],
        target: str,
        arch: str | None,
        outer: frozenset[str] = frozenset(),
    ) -> None:
        self.graph, self.formals = graph, tuple(formals)
        self.target, self.arch = target, arch or DEFAULT_ARCH
        self.links = link(graph)
        self.binder = Binder(graph, self.links, dict(dims), {}, run_time=True)
        self._dims_key = tuple(dims.values())
        self.sources = KernelSources(graph)
        self.statics: dict[str, Tensor] = {}
        self.outputs = _outputs(graph)
        self.output_at = {name: at for at, name in reversed(tuple(enumerate(self.outputs)))}
        self.captured = tuple(captured(graph, node) for node in graph.nodes)
        self.reads = tuple(
            tuple(dict.fromkeys([*(n for n in names if n is not None), *more]))
            for names, more in zip(self.links.inputs, self.captured, strict=True)
        )
        self.uses = {name: len(positions) for name, positions in self.links.readers.items()}
        for name in self.outputs:
            self.uses[name] = self.uses.get(name, 0) + 1
        self._programs: list[dict[tuple[Types, tuple[int, ...]], NodeProgram]] = [{} for _ in graph.nodes]
        self._check_names(outer)
        known = frozenset({*outer, *self.formals, *graph.tensors, *self.links.producer})
        self.bodies = tuple(self._bodies_of(position, known) for position in range(len(graph.nodes)))

    def _bodies_of(self, position: int, known: frozenset[str]) -> dict[str, Body]:
        """The bodies of a control node, by role."""
        node = self.graph.nodes[position]
        if not is_control(node):
            return {}
        assert is_op(node)
        made = {}
        for role, name in body_names(self.graph, position, node).items():
            inner = body_graph(self.graph, name)
            made[role] = Body(inner, formal_inputs(inner), self.dims, self.target, self.arch, known)
        return made

    def _check_names(self, outer: frozenset[str]) -> None:
        """Every name read is defined, here or outside; a tensor that is read and declared here has bytes."""
        graph, links = self.graph, self.links
        for position, names in enumerate(links.inputs):
            for name in names:
                if name is None or name in links.producer or name in self.formals:
                    continue
                if name in graph.tensors:
                    role_of(graph, links, name, graph.tensors[name])
                elif name not in outer:
                    raise GraphError(
                        f"tensor {name!r} is not defined",
                        code="KG343",
                        where=graph.place("nodes", position, "inputs"),
                        help=did_you_mean(name, {*graph.tensors, *links.producer, *self.formals, *outer}),
                    )
        known = {*links.producer, *self.formals, *graph.tensors, *outer}
        for i, name in enumerate(self.outputs):
            if name not in known:
                raise GraphError(
                    f"graph output {name!r} is not defined",
                    code="KG343",
                    where=graph.place("outputs", i),
                    help=did_you_mean(name, {*graph.tensors, *links.producer}),
                )

    @property
    def dims(self) -> dict[str, int]:
        """Values of the dimensions."""
        return self.binder.dims

    def set_dims(self, dims: Mapping[str, int]) -> None:
        """Run with other values from now on, in the bodies of control nodes too."""
        self.binder.dims = dict(dims)
        self._dims_key = tuple(dims.values())
        for bodies in self.bodies:
            for body in bodies.values():
                body.set_dims(dims)

    def inner(self) -> Iterator[Body]:
        """The bodies of its control nodes, and theirs."""
        for bodies in self.bodies:
            for body in bodies.values():
                yield body
                yield from body.inner()

    @property
    def whole(self) -> bool:
        """Whether it is the whole graph, not a body of it."""
        return self.graph.body is None

    def role(self, name: str) -> Role:
        """Role of a tensor that comes from outside the nodes."""
        return role_of(self.graph, self.links, name, self.graph.tensors[name])

    def extent(self, entry: Expression) -> int:
        """Value of an entry of a shape."""
        return entry if isinstance(entry, int) else evaluate(entry, self.dims)

    def external(self, name: str) -> tuple[TensorType, Role]:
        """Type and role of a tensor that comes from outside the nodes."""
        self.binder.types.clear()
        return self.binder.external_type(name), self.role(name)

    def host_inputs(self, position: int) -> frozenset[int]:
        """Positions of a node's inputs whose elements must be known before it can be bound."""
        node = self.graph.nodes[position]
        return lookup(node.op).host_inputs if is_op(node) else frozenset()

    def known_program(self, position: int, types: Types) -> NodeProgram | None:
        """What the node was lowered to for `types` before."""
        return self._programs[position].get((types, self._dims_key))

    def bind_program(self, position: int, types: Types, roles: Mapping[str, Role]) -> NodeProgram:
        """The node lowered for `types`; remembered.

        Raises:
            GraphError: inputs that the node does not take; in-place requests that cannot be.
            DoesNotFit: KG400 for sizes beyond any memory.
        """
        known = self._programs[position]
        if len(known) >= _MOST_PROGRAMS:
            del known[next(iter(known))]
        made = known[types, self._dims_key] = self._bind(position, types, roles)
        return made

    def _bind(self, position: int, types: Types, roles: Mapping[str, Role]) -> NodeProgram:
        names = self.links.inputs[position]
        given = {n: t for n, t in zip(names, types, strict=True) if n is not None and t is not None}
        binder = self.binder
        binder.types.clear()
        binder.types.update(given)
        node = binder.bind_node(0, position, ())
        made = {name: binder.types[name] for name in node.written_names()}
        bound = self._alone(node, given, made, roles)
        check_sizes(bound)
        for fault in node_faults(bound, node, self.arch):
            raise fault
        outputs = tuple(made.get(name) if name is not None else None for name in node.outputs)
        if node.call is not None and not node.call.exact:
            function = dynamic_kernel(node.op)(node.call)
            nothing = Program(bound, self.target, (), {}, ())
            return NodeProgram(node, nothing, outputs, (), (None,) * len(outputs), dynamic=function)
        program = lower(bound, self.target, reuse=False, views=False, sources=self.sources)
        sources = _sources(program, node)
        written = {index for step in program.steps for index in step.writes}
        touched = written.union(*(step.reads for step in program.steps))
        slots = program.slots
        return NodeProgram(
            node, program, outputs, sources, _places(program, node),
            overwrites=tuple(index for index in sorted(written) if sources[index] is not None),
            touched=tuple(index in touched for index in range(len(program.buffers))),
            pins=tuple((n, slots[pinned_name(n)].buffer) for n in node.written_names() if pinned_name(n) in slots),
        )  # fmt: skip

    def _alone(
        self,
        node: BoundNode,
        given: Mapping[str, TensorType],
        made: Mapping[str, TensorType],
        roles: Mapping[str, Role],
    ) -> BoundGraph:
        """The node as a bound graph: what it reads comes from outside, what it writes is wanted."""
        tensors: dict[str, BoundTensor] = {}
        for name, kind in given.items():
            tensors[name] = BoundTensor(
                name, roles.get(name, "intermediate"), kind, consumers=(0,), is_output=name in self.output_at,
                spec=self.graph.tensors.get(name),
            )  # fmt: skip
        for name, kind in made.items():
            tensors[name] = BoundTensor(
                name,
                "intermediate",
                kind,
                producer=0,
                is_output=name in self.output_at,
                spec=self.graph.tensors.get(name),
            )
        return BoundGraph(self.graph, self.dims, tensors, (node,), tuple(made))


def _outputs(graph: KernelGraph) -> tuple[str, ...]:
    marked = tuple(name for name, spec in graph.tensors.items() if spec.role == "output")
    return tuple(graph.outputs) or marked


def _sources(program: Program, node: BoundNode) -> tuple[int | None, ...]:
    position = {name: i for i, name in reversed(list(enumerate(node.inputs))) if name is not None}
    return tuple(next((position[n] for n in b.tensors if n in position), None) for b in program.buffers)


def _places(program: Program, node: BoundNode) -> tuple[int | None, ...]:
    slots = program.slots
    return tuple(slots[name].buffer if name is not None and name in slots else None for name in node.outputs)
