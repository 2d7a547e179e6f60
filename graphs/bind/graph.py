"""Bind: give every dimension, shape and dtype a value, check the graph, put its nodes in execution order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import starmap, zip_longest
from typing import TYPE_CHECKING, Any

from kgrun.graphs.bind import checks
from kgrun.graphs.bind.caches import bind_caches, cached_type
from kgrun.graphs.bind.collectives import collective_attributes
from kgrun.graphs.bind.dims import bind_dims, bind_shape
from kgrun.graphs.bind.launches import NodeScope, bind_launch, bind_workspace
from kgrun.graphs.bind.links import Links, link
from kgrun.graphs.bind.presets import inplace_of
from kgrun.graphs.bind.queues import bind_queues
from kgrun.graphs.bind.tensors import check_declared, external_type, host_value, role_of, undefined
from kgrun.graphs.bind.unsupported import decided_while_running, shapes_unknown
from kgrun.graphs.bound import BoundGraph, BoundNode, BoundTensor, Warning
from kgrun.graphs.control import is_control
from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators import infer, lookup
from kgrun.graphs.operators.base import InferenceError, OpCall, TensorType
from kgrun.graphs.operators.names import COLLECTIVES
from kgrun.graphs.schema.kinds import is_op

if TYPE_CHECKING:
    import numpy as np

    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.graphs.schema.nodes import KernelNode, OpNode

DEFAULT_ARCH = "sm_90"


def bind(
    graph: KernelGraph,
    *,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, np.ndarray[Any, Any]] | None = None,
    strict: bool = False,
    allow_empty: bool = False,
    target: str | None = None,
    upper_bounds: bool = False,
) -> BoundGraph:
    """The graph with nothing left open, checked.

    Args:
        dims: values of dimensions; the file's defaults fill the rest.
        values: host arrays of inputs, where operators need to know them to infer shapes.
        strict: what would be a warning is an error.
        allow_empty: accept a graph without nodes.
        target: architecture whose launch limits hold, for example "sm_90" (the default).
        upper_bounds: where elements decide a shape, take the largest it can be, or its `max_shape` (S20), and warn.

    Raises:
        UsageError: dimensions unbound, unknown or out of range.
        GraphError: anything else that is wrong with the graph; `others` holds further errors of the same pass.
    """
    if not graph.nodes and not allow_empty:
        raise GraphError(
            "the graph has no nodes",
            code="KG346",
            where=graph.place("nodes"),
            help="add nodes, or pass --allow-empty",
        )
    links = link(graph)
    binder = Binder(graph, links, bind_dims(graph, dims or {}), values or {}, run_time=upper_bounds)
    nodes = binder.bind_nodes()
    tensors = bound_tensors(binder, nodes)
    outputs = checks.graph_outputs(graph, tensors)
    bound = BoundGraph(
        graph, binder.dims, tensors, nodes, outputs, (), {**binder.assumed_values(), **(values or {})}, binder.queues
    )
    bound = replace(bound, caches=bind_caches(bound, binder.tables))
    warnings = (*binder.bounded, *checks.check(bound, target or DEFAULT_ARCH, run_time=upper_bounds))
    if strict and warnings:
        errors = [GraphError(w.message, code="KG399", where=graph.place(*w.path)) for w in warnings]
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    return replace(bound, warnings=warnings)


class Binder:
    """Walks the nodes in execution order and remembers the type of each tensor met.

    Args:
        run_time: an operator whose shapes depend on elements is let through, with the largest that they can be.

    Attributes:
        bounded: a warning for each operator let through.
        assumed: inputs and parameters that were believed to hold what the file says, for their elements decide shapes.
    """

    def __init__(
        self,
        graph: KernelGraph,
        links: Links,
        dims: dict[str, int],
        values: Mapping[str, np.ndarray[Any, Any]],
        *,
        run_time: bool = False,
    ) -> None:
        self.graph, self.links, self.dims, self.values, self.run_time = graph, links, dims, values, run_time
        self.queues, self.fed = bind_queues(graph, dims)
        self.types: dict[str, TensorType] = dict(self.fed)
        self.external: list[str] = []  # in the order met (S12)
        self.tables: dict[str, TensorType] = {}  # whole types of the parameters that stay on the host
        self.cached: set[str] = set()  # they, and what updates them in place
        self.bounded: list[Warning] = []
        self.assumed: dict[str, TensorType] = {}  # whose elements in the file decided a shape

    def bind_nodes(self) -> tuple[BoundNode, ...]:
        feeders = {queue.position for queue in self.queues}
        index_of = {p: index for index, p in enumerate(p for p in self.links.order if p not in feeders)}
        nodes = []
        for position, index in index_of.items():
            before = tuple(sorted(index_of[p] for p in self.links.predecessors[position] if p not in feeders))
            nodes.append(self.bind_node(index, position, before))
        return tuple(nodes)

    def external_type(self, name: str) -> TensorType:
        """Type of a tensor that no node writes; remembers it."""
        if name not in self.types:
            spec = self.graph.tensors[name]
            role_of(self.graph, self.links, name, spec)  # raises for a tensor that nothing fills
            self.types[name] = external_type(self.graph, name, spec, self.dims, self.values.get(name))
            self.external.append(name)
            if spec.cache is not None:
                self.tables[name] = self.types[name]
                self.types[name] = cached_type(self.graph, name, self.types[name])
                self.cached.add(name)
        return self.types[name]

    def bind_node(self, index: int, position: int, predecessors: tuple[int, ...]) -> BoundNode:
        """One node; the types of its inputs are known, those of its outputs are remembered."""
        node = self.graph.nodes[position]
        inputs = self.links.inputs[position]
        scope = NodeScope(self.graph, position, self.dims)
        types = tuple(self._input_type(position, i, name) for i, name in enumerate(inputs))
        call, launch = None, None
        if not is_op(node):
            launch = bind_launch(scope, node, inputs)
            made = [self._declared_output(scope, node, i, name) for i, name in enumerate(node.outputs)]
            op = node.kernel
        else:
            call = self._infer(scope, node, inputs, types)
            made = list(call.outputs)
            op = node.op
        for name, kind in zip(node.outputs, made, strict=False):
            if name is not None and node.inplace.get(name) in self.cached:
                self.cached.add(name)
                self.types[name] = self.types[node.inplace[name]]
            elif name is not None:
                if call is not None and call.exact:
                    check_declared(self.graph, name, kind, self.dims, node.name)
                self.types[name] = kind
        workspace, cleared = bind_workspace(scope, node)
        return BoundNode(
            index=index, position=position, name=node.name, op=op, inputs=inputs, outputs=tuple(node.outputs),
            call=call, launch=launch, workspace=workspace, cleared_workspace=cleared,
            inplace=inplace_of(self.graph, node, inputs), clear=tuple(node.clear), predecessors=predecessors,
            flops=None if node.flops is None else scope.evaluate(node.flops, "flops"),
            bytes=None if node.bytes is None else scope.evaluate(node.bytes, "bytes"),
            spec=node,
        )  # fmt: skip

    def _input_type(self, position: int, i: int, name: str | None) -> TensorType | None:
        if name is None or (name in self.graph.tensors and not self.graph.tensors[name].valid):
            return None  # absent, or masked (S15)
        if name in self.types:
            return self.types[name]
        if name in self.links.producer:
            raise AssertionError("execution order puts producers first")
        if name not in self.graph.tensors:
            raise undefined(self.graph, name, "nodes", position, "inputs", i)
        return self.external_type(name)

    def _declared_output(self, scope: NodeScope, node: KernelNode, i: int, name: str | None) -> TensorType:
        spec = self.graph.tensors.get(name) if name is not None else None
        if name is None:
            return TensorType("uint8", (0,))
        if spec is None or spec.dtype is None or spec.shape is None:
            raise scope.error(
                "KG351",
                f"output {name!r} of kernel node {node.name!r} needs a declared dtype and shape",
                "outputs",
                i,
                help=f"add it to tensors: {name}: {{dtype: float32, shape: […]}}",
            )
        return TensorType(spec.dtype, bind_shape(self.graph, spec.shape, self.dims, "tensors", name, "shape"))

    def _infer(
        self, scope: NodeScope, node: OpNode, inputs: tuple[str | None, ...], types: tuple[TensorType | None, ...]
    ) -> OpCall:
        if is_control(node):
            raise decided_while_running(self.graph, scope.position, node.op)
        try:
            schema = lookup(node.op)
            known = tuple(
                self._host_value(name, kind)
                if i in schema.host_inputs and name is not None and kind is not None and kind.value is None
                else kind
                for i, (name, kind) in enumerate(zip(inputs, types, strict=True))
            )
            attributes = collective_attributes(scope, node) if node.op in COLLECTIVES else node.attributes
            call = infer(node.op, node.name, known, attributes, len(node.outputs))
        except InferenceError as error:
            raise error.at(self.graph.place("nodes", scope.position, *error.path)) from None
        except GraphError as error:
            raise error.at(self.graph.place("nodes", scope.position, "op")) from None
        call.unnamed = frozenset(position for position, name in enumerate(node.outputs) if name is None)
        if not call.exact:
            if not self.run_time:
                raise shapes_unknown(self.graph, scope.position, node.op)
            call.outputs = tuple(starmap(self._bounded, zip_longest(call.outputs, node.outputs[: len(call.outputs)])))
            text = f"the shapes of {node.name!r} are the largest they can be: the run tells the real ones"
            self.bounded.append(Warning("W-UPPER-BOUND", text, ("nodes", scope.position)))
        return call

    def assumed_values(self) -> dict[str, np.ndarray[Any, Any]]:
        """`assumed` as arrays."""
        if not self.assumed:
            return {}  # without numpy
        from kgrun.graphs.data import value_array

        return {
            name: value_array(list(kind.value or ()), kind.dtype, None, {}).reshape(kind.shape)
            for name, kind in self.assumed.items()
        }

    def _host_value(self, name: str, kind: TensorType) -> TensorType:
        """`kind` with the elements that the file gives it; remembers those that a run could give otherwise."""
        found = host_value(self.graph, name, kind, self.dims)
        if found.value is not None and self.graph.tensors[name].role in ("input", "parameter", None):
            self.assumed[name] = found
        return found

    def _bounded(self, kind: TensorType, name: str | None) -> TensorType:
        """An upper bound, cut to the `max_shape` that the file states."""
        spec = self.graph.tensors.get(name) if name is not None else None
        if spec is None or spec.max_shape is None or len(spec.max_shape) != len(kind.shape):
            return kind
        most = bind_shape(self.graph, spec.max_shape, self.dims, "tensors", str(name), "max_shape")
        return TensorType(kind.dtype, tuple(map(min, kind.shape, most)))


def bound_tensors(binder: Binder, nodes: tuple[BoundNode, ...]) -> dict[str, BoundTensor]:
    """All tensors: declared inputs in order, discovered ones, node outputs, what no node touches."""
    graph, links = binder.graph, binder.links
    index_of = {node.position: node.index for node in nodes}
    declared = graph.inputs if graph.inputs is not None else _implicit_inputs(graph, links)
    untouched = [n for n in graph.tensors if n not in binder.types and n not in links.producer]
    for i, name in enumerate(declared):
        if name not in graph.tensors:
            raise undefined(graph, name, "inputs", i)
        if name in links.producer:
            raise GraphError(
                f"declared input {name!r} is written by a node", code="KG341", where=graph.place("inputs", i)
            )
    for name in untouched:
        if role_of(graph, links, name, graph.tensors[name]) != "intermediate":
            binder.external_type(name)
    produced = [name for node in nodes for name in node.outputs if name is not None]
    names = dict.fromkeys([*(n for n in declared if n in binder.types), *binder.fed, *binder.external, *produced])
    wanted = set(graph.outputs) or {n for n, s in graph.tensors.items() if s.role == "output"}
    device_read = _device_reads(nodes)
    tensors = {}
    for name in names:
        spec = graph.tensors.get(name)
        fed = name in binder.fed
        position = None if fed else links.producer.get(name)
        role = "input" if fed else role_of(graph, links, name, spec) if spec is not None else "intermediate"
        tensors[name] = BoundTensor(
            name=name,
            role=role,
            type=binder.types[name],
            producer=None if position is None else index_of[position],
            consumers=tuple(sorted(index_of[p] for p in links.readers.get(name, ()) if p in index_of)),
            used=position is not None or name in device_read,
            discovered=position is None and not fed and name not in declared and role != "constant",
            is_output=name in wanted,
            spec=spec,
        )
    return tensors


def _implicit_inputs(graph: KernelGraph, links: Links) -> list[str]:
    return [
        n for n, s in graph.tensors.items() if s.role in ("input", "parameter", "constant") and n not in links.producer
    ]


def _device_reads(nodes: tuple[BoundNode, ...]) -> set[str]:
    """Names that some step reads on the device: not those an operator only looks at while binding."""
    names: set[str] = set()
    for node in nodes:
        host = lookup(node.op).host_inputs if node.call is not None else frozenset()
        names.update(n for i, n in enumerate(node.inputs) if n is not None and i not in host)
    return names
