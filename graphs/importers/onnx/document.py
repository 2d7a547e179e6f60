"""The graph in the making as a graph document: what nothing reads is left out, names are made unique."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.importers.onnx.dims import Dims
from kgrun.graphs.importers.onnx.values import Body, Emitted, Value, nested
from kgrun.graphs.operators import lookup
from kgrun.graphs.operators.base import TensorType

MAX_NAME = 1_000
Reference = Callable[[str], str]


@dataclass(slots=True)
class Writer:
    """Writes one model's graph.

    Attributes:
        reference: from an array's key to the `data` of a tensor.
        keys: of the arrays that the graph reads, in order.
    """

    reference: Reference
    keys: dict[str, None] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _long: dict[str, str] = field(default_factory=dict)  # names that were too long, by what they became
    _taken: set[str] = field(default_factory=set)
    _nodes: set[str] = field(default_factory=set)
    _graphs: dict[str, Any] = field(default_factory=dict)

    def document(self, name: str, doc: str, body: Body, outputs: Mapping[str, Value], dims: Dims) -> dict[str, Any]:
        """The document of the whole model; `outputs` are the graph's by name."""
        for value in body.inputs:
            self._claim(value, value.name)
        results = self._results(body, outputs)
        nodes = _needed(body)
        tensors: dict[str, Any] = {self._name(value): _declared(value) for value in body.inputs}
        written = [self._node(node, tensors) for node in nodes]
        for short, long in self._long.items():
            tensors.setdefault(short, {})["doc"] = long
        document: dict[str, Any] = {"kgrun": 1, "name": name[:MAX_NAME] or "graph", "doc": doc}
        if dims.names:
            document["dims"] = _dims(dims)
        # Inputs stand first among the tensors, in the model's order; a list of them would call weights undeclared.
        document |= {"tensors": tensors, "nodes": written, "outputs": results}
        return document | ({"graphs": self._graphs} if self._graphs else {})

    def _results(self, body: Body, outputs: Mapping[str, Value]) -> list[str]:
        """Give the graph's outputs their names: each a node's result of its own."""
        made = {id(value) for node in body.nodes for value in node.outputs}
        claimed: set[int] = set()
        for name, value in outputs.items():
            if id(value) in claimed or id(value) not in made or name in self._taken:
                value = self._copy(body, name, value)
            claimed.add(id(value))
            self._claim(value, name)
            body.outputs.append(value)
        return [self._name(value) for value in body.outputs]

    def _copy(self, body: Body, name: str, value: Value) -> Value:
        """A node that gives an output a tensor of its own: a Constant, or an Identity of what another name means."""
        copied = Value(name, None if value.type is None else TensorType(value.type.dtype, value.type.shape))
        if value.constant and value.key is None and value.type is not None and value.type.size:
            kind = value.type
            items = nested(kind.value or (), kind.dtype, (kind.size,))
            attributes = {"value": items, "shape": list(kind.shape), "dtype": kind.dtype}
            body.nodes.append(Emitted("Constant", name, [], [copied], attributes))
        else:
            body.nodes.append(Emitted("Identity", name, [value], [copied], {}))
        return copied

    def _node(self, node: Emitted, tensors: dict[str, Any]) -> dict[str, Any]:
        for value in node.inputs:
            self._external(value, tensors)
        row: dict[str, Any] = {
            "name": _unique(node.name, self._nodes),
            "op": node.op,
            "inputs": [None if value is None else self._name(value) for value in node.inputs],
            "outputs": [None if value is None else self._name(value) for value in node.outputs],
        }
        if len(node.name) > MAX_NAME:
            row["doc"] = node.name
        if node.attributes:
            row["attributes"] = node.attributes
        if node.bodies:
            row["subgraphs"] = {role: self._graph(f"{node.name}/{role}", body) for role, body in node.bodies.items()}
        return row

    def _graph(self, name: str, body: Body) -> str:
        """Write a body under `graphs`; returns its name there."""
        name = _unique(name, set(self._graphs))
        self._graphs[name] = None  # taken
        tensors: dict[str, Any] = {}
        nodes = _needed(body)
        inputs = [self._name(value) for value in body.inputs]
        written = [self._node(node, tensors) for node in nodes]
        for value in body.outputs:
            self._external(value, tensors)
        outputs = [self._name(value) for value in body.outputs]
        self._graphs[name] = {"inputs": inputs, "tensors": tensors, "nodes": written, "outputs": outputs}
        return name

    def _external(self, value: Value | None, tensors: dict[str, Any]) -> None:
        """Declare a constant where it is first read."""
        if value is None or not value.constant:
            return
        name = self._name(value)
        if name in tensors:
            return
        kind = value.type
        assert kind is not None
        if value.key is not None:
            self.keys.setdefault(value.key)
            reference = self.reference(value.key)
            tensors[name] = {"role": "parameter", "dtype": kind.dtype, "shape": list(kind.shape), "data": reference}
        elif 0 in kind.shape and len(kind.shape) > 1:  # lists cannot say how wide no rows are
            tensors[name] = {"role": "parameter", "dtype": kind.dtype, "shape": list(kind.shape), "init": {"fill": 0}}
        else:
            tensors[name] = {"role": "constant", "dtype": kind.dtype, **_inline(kind)}

    def _name(self, value: Value) -> str:
        if id(value) not in self._names:
            self._claim(value, value.name)
        return self._names[id(value)]

    def _claim(self, value: Value, name: str) -> None:
        self._names[id(value)] = _unique(name, self._taken)
        if len(name) > MAX_NAME:
            self._long[self._names[id(value)]] = name


def _needed(body: Body) -> list[Emitted]:
    """The nodes that the outputs need; results that nothing reads lose their names."""
    wanted = {id(value) for value in body.outputs}
    kept: list[Emitted] = []
    for node in reversed(body.nodes):
        if not any(id(value) in wanted for value in node.outputs):
            continue
        node.outputs = [value if id(value) in wanted else None for value in node.outputs]
        if not node.bodies and not lookup(node.op).any_outputs:
            while len(node.outputs) > lookup(node.op).outputs[0] and node.outputs[-1] is None:
                node.outputs.pop()
        wanted.update(id(value) for value in node.inputs)
        for inner in node.bodies.values():
            wanted.update(_free(inner))
        kept.append(node)
    return kept[::-1]


def _free(body: Body) -> set[int]:
    """What a body reads: its own values among them, which do no harm."""
    found = {id(value) for value in body.outputs}
    for node in body.nodes:
        found.update(id(value) for value in node.inputs)
        for inner in node.bodies.values():
            found |= _free(inner)
    return found


def _declared(value: Value) -> dict[str, Any]:
    """An input; without an array it runs on random numbers, small enough whole ones to be indices."""
    assert value.declared is not None
    dtype, shape = value.declared
    kind = DTYPES[dtype].kind
    init: dict[str, Any] = {"uniform": [0, 1]} if kind == "float" else {"integers": [0, 2]}
    return {"role": "input", "dtype": dtype, "shape": shape, "init": {"fill": True} if kind == "bool" else init}


def _inline(kind: TensorType) -> dict[str, Any]:
    elements = kind.value
    assert elements is not None
    if kind.size > 1 and all(element == elements[0] for element in elements):
        return {"shape": list(kind.shape), "value": nested(elements[:1], kind.dtype, ())}
    assert prod(kind.shape) == len(elements)
    return {"value": nested(elements, kind.dtype, kind.shape)}


def _dims(dims: Dims) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name in dims.names.values():
        doc = {"doc": dims.docs[name]} if name in dims.docs else {}
        value = dims.values.get(name)
        rows[name] = ({} if value is None else {"default": value, "min": value, "max": value}) | doc
    return rows


def _unique(name: str, taken: set[str]) -> str:
    """`name`, shortened to what the format takes, with a number where it is taken already."""
    plain = name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 40]}…"
    found, count = plain or "_", 2
    while found in taken:
        found, count = f"{plain}:{count}", count + 1
    taken.add(found)
    return found
