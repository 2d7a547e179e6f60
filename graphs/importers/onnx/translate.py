"""Walks the nodes of a model: each becomes kgrun nodes by an adapter, by its own name, or by its function's body."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kgrun.graphs.data_onnx import Message
from kgrun.graphs.errors import GraphError, PathPart
from kgrun.graphs.importers.onnx import control, functions
from kgrun.graphs.importers.onnx.adapters import ADAPTERS
from kgrun.graphs.importers.onnx.attributes import plain_attributes
from kgrun.graphs.importers.onnx.container import Container, array_key
from kgrun.graphs.importers.onnx.contrib.definitions import DEFINITIONS
from kgrun.graphs.importers.onnx.emitter import Emitter
from kgrun.graphs.importers.onnx.errors import Faults, Unsupported
from kgrun.graphs.importers.onnx.order import ordered
from kgrun.graphs.importers.onnx.uses import Level, Use, onnx_schema
from kgrun.graphs.importers.onnx.values import Value, from_array
from kgrun.graphs.operators import schema_in

# What takes integers of a few bits as the bytes that kgrun makes of them.
_UNPACKING = frozenset({"DequantizeLinear", "Cast", "Identity"})
ONNX = ""  # ONNX's own domain; "ai.onnx" is another name for it

Results = Sequence[Value | list[Value] | None]


class Translator:
    """Turns the nodes of one container into nodes of an emitter's body."""

    def __init__(self, container: Container, faults: Faults) -> None:
        self.container, self.faults = container, faults
        self.emitter = Emitter()
        self.undecided = 0  # how many bodies that may never run are around the node
        self.functions = {(f.domain, f.name, f.overload): f for f in container.model.functions}

    @property
    def path(self) -> Path:
        """The model's file."""
        return self.container.path

    def walk(self, nodes: Iterable[Message], level: Level, where: tuple[PathPart, ...]) -> None:
        """Translate `nodes` into the emitter's body, sources first; their outputs enter the level's scope."""
        for position, node in ordered(nodes):
            name = level.label + (node.name or f"{node.op_type}_{position}")
            mark = self.emitter.mark()
            try:
                for output in node.output:
                    if output and output in level.scope.values:
                        raise Unsupported(f"{output!r} is there already: a name means one value", code="KG341")
                made = self._node(node, position, name, level, where)
            except Unsupported as error:
                self.emitter.rollback(mark)
                self.faults.add((*where, "node", position), name, _full_name(node), error)
                made = [Value(output, broken=True) for output in node.output]
            self._name_results(node, made, mark, level)

    def _node(self, node: Message, position: int, name: str, level: Level, where: tuple[PathPart, ...]) -> Results:
        inputs = [level.scope.find(each) if each else None for each in node.input]
        if any(value.broken for value in inputs if isinstance(value, Value)):
            # Its types are unknown, but whether its operator is there can still be said.
            if not self._exists(node):
                raise Unsupported(f"kgrun has no operator {_full_name(node)}")
            return [Value(output, broken=True) for output in node.output]
        domain = ONNX if node.domain == "ai.onnx" else node.domain
        schema = onnx_schema(node.op_type, domain, level.versions.get(domain))
        use = Use(
            op=node.op_type, domain=domain, version=schema.since_version if schema is not None else 0, name=name,
            inputs=inputs, attributes=plain_attributes(node),
            wanted=[bool(each) and each in level.wanted for each in node.output],
            node=node, level=level, position=position, emitter=self.emitter, path=self.path, faults=self.faults,
        )  # fmt: skip
        local = self.functions.get((node.domain, node.op_type, node.overload))
        if local is not None:
            return functions.inline_local(self, use, local)
        if (domain, node.op_type) in DEFINITIONS:
            with _fitting():
                text = DEFINITIONS[domain, node.op_type](use)
            return functions.inline_text(self, use, text)
        if domain == ONNX and node.op_type == "Constant":
            return [self._constant(use)]
        packed = next((v.packed for v in inputs if isinstance(v, Value) and v.packed), None)
        if packed is not None and node.op_type not in _UNPACKING:
            raise Unsupported(f"element type {packed}", help="kgrun reads such weights only to dequantise them")
        if domain == ONNX and node.op_type in control.HANDLERS:
            with _fitting():
                return control.HANDLERS[node.op_type](self, use, where)
        return self._operator(use)

    def _operator(self, use: Use) -> Results:
        """By an adapter or kgrun's operator of that name; where that cannot be, by the function that defines it."""
        adapter = ADAPTERS.get((use.domain, use.op))
        native = schema_in(use.domain, use.op) is not None
        mark = self.emitter.mark()
        first: Unsupported | None = None
        if adapter is not None or native:
            try:
                with _fitting():
                    return adapter(use) if adapter is not None else use.result(use.tensors)
            except Unsupported as error:
                if error.code == "KG330":
                    raise
                self.emitter.rollback(mark)
                first = error
        try:
            return functions.inline_schema(self, use)
        except Unsupported as error:
            self.emitter.rollback(mark)
            if first is None or not (first.types and self.undecided):
                raise first or error from None
        self.emitter.lenient = True
        try:
            return adapter(use) if adapter is not None else use.result(use.tensors)
        finally:
            self.emitter.lenient = False

    def _exists(self, node: Message) -> bool:
        domain = ONNX if node.domain == "ai.onnx" else node.domain
        return (
            (node.domain, node.op_type, node.overload) in self.functions
            or (domain == ONNX and node.op_type == "Constant")
            or schema_in(domain, node.op_type) is not None
            or (domain, node.op_type) in ADAPTERS
            or (domain, node.op_type) in DEFINITIONS
            or node.op_type in control.HANDLERS
            or functions.has_body(node)
        )

    def _constant(self, use: Use) -> Value:
        """The value of a Constant node: an array of the container, or numbers written in the node."""
        for name in ("value", "sparse_value"):
            if name in use.attributes:
                return self.array(use.level, use.node.output[0], use.attributes[name])
        dtypes = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}
        for name, dtype in dtypes.items():
            if name in use.attributes:
                found = use.attributes[name]
                items = tuple(float(i) if dtype == "float32" else i for i in (found if name[-1] == "s" else [found]))
                return use.constant(dtype, (len(items),) if name[-1] == "s" else (), items)
        raise Unsupported("its value is a string" if use.node.attribute else "it has no value")

    def array(self, level: Level, name: str, tensor: Message) -> Value:
        """A constant made of `tensor`, which the container has under the level's prefix and `name`."""
        from kgrun.graphs.data_onnx import stored_tensor

        try:
            stored = stored_tensor(tensor, name, self.path)
            made = from_array(level.label + name, array_key(level.prefix or "", name), stored)
        except GraphError as error:
            raise Unsupported(error.message, code=error.code, help=error.help) from None
        if made.key is not None and level.prefix is None:
            raise Unsupported(f"{name!r} is a large constant inside a function of ONNX")
        return made

    def initializers(self, graph: Message, level: Level, where: tuple[PathPart, ...]) -> None:
        """The arrays of a graph enter the level's scope."""
        rows = [(tensor.name, tensor) for tensor in graph.initializer]
        rows += [(sparse.values.name, sparse) for sparse in graph.sparse_initializer]
        for name, tensor in rows:
            try:
                level.scope.values[name] = self.array(level, name, tensor)
            except Unsupported as error:
                if name in level.wanted:
                    self.faults.add((*where, "initializer"), name, "initializer", error)
                level.scope.values[name] = Value(name, broken=True)

    def _name_results(self, node: Message, made: Results, mark: int, level: Level) -> None:
        """Results enter the scope; those that are new take the model's names."""
        fresh = {id(value) for each in self.emitter.body.nodes[mark:] for value in each.outputs}
        for output, value in zip(node.output, made, strict=False):
            if not output:
                continue
            if isinstance(value, Value) and (id(value) in fresh or (value.constant and value.key is None)):
                if id(value) in fresh or value.name.startswith(level.label + (node.name or "")):
                    value.name = level.label + output
                fresh.discard(id(value))
            level.scope.values[output] = value
        for output in node.output[len(made) :]:
            if output:
                level.scope.values[output] = None


@contextmanager
def _fitting() -> Iterator[None]:
    """Unsupported for attributes and subgraphs that are missing, or that no use of the operator can have.

    Models are not checked against ONNX's schemas first: it would cost more than the import.
    """
    try:
        yield
    except KeyError as error:
        raise Unsupported(f"it lacks {error}, which the operator needs", code="KG330") from None
    except (TypeError, ValueError, IndexError) as error:
        raise Unsupported(f"its attributes do not fit the operator: {error}", code="KG330") from None


def names_read(nodes: Iterable[Message], outputs: Iterable[str]) -> frozenset[str]:
    """Names that `nodes`, their subgraphs, or the outputs read."""
    found = set(outputs)
    stack = list(nodes)
    while stack:
        node = stack.pop()
        found.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                stack.extend(attribute.g.node)
                found.update(output.name for output in attribute.g.output)
    return frozenset(found)


def _full_name(node: Message) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)
