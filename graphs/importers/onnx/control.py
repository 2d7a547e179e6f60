"""If, Loop and Scan: inlined where what they decide by is known, else nodes with bodies that decide while they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kgrun.graphs.data_onnx import Message
from kgrun.graphs.dtypes import ONNX_DTYPES
from kgrun.graphs.errors import PathPart
from kgrun.graphs.importers.onnx.container import subgraph_prefix
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Level, Scope, Use
from kgrun.graphs.importers.onnx.values import Body, Emitted, Value

if TYPE_CHECKING:
    from kgrun.graphs.importers.onnx.translate import Results, Translator

# Longer loops are not unrolled: the graph would grow beyond what a person reads.
MAX_TRIPS = 256
MAX_NODES = 20_000

Where = tuple[PathPart, ...]


class _NotStatic(Exception):
    """The loop's end is not known before the run."""


def if_node(translator: Translator, use: Use, where: Where) -> Results:
    """The branch that is taken, in place of the node; both as bodies where the condition is not known."""
    known = use.known(0)
    branches = _subgraphs(use)
    if known is not None and len(known) == 1:
        role = "then_branch" if known[0] else "else_branch"
        return inline(translator, use, role, branches[role], [], f"{use.name}/", where)
    bodies = {role: _body(translator, use, role, branches[role], [], where) for role in ("then_branch", "else_branch")}
    return _node(translator, use, bodies)


def loop(translator: Translator, use: Use, where: Where) -> Results:
    """The body once for every trip where their number is known, else as a body."""
    body = _subgraphs(use)["body"]
    mark, faults = translator.emitter.mark(), len(translator.faults.found)
    try:
        return _unrolled_loop(translator, use, body, where)
    except _NotStatic:
        translator.emitter.rollback(mark)
        del translator.faults.found[faults:]
    formal = [_formal(info) for info in body.input]
    return _node(translator, use, {"body": _body(translator, use, "body", body, formal, where)})


def _unrolled_loop(translator: Translator, use: Use, body: Message, where: Where) -> Results:
    trips = use.known(0) if use.input(0) is not None else (MAX_TRIPS + 1,)
    going = use.known(1) if use.input(1) is not None else (True,)
    if trips is None or going is None:
        raise _NotStatic
    carried: list[Value | list[Value] | None] = list(use.inputs[2:])
    collected: list[list[Value]] = [[] for _ in body.output[1 + len(carried) :]]
    trip = 0
    while trip < int(trips[0]) and going[0]:
        if trip >= MAX_TRIPS or translator.emitter.mark() > MAX_NODES:
            raise _NotStatic
        label = f"{use.name}/{trip}/"
        given = [use.scalar(trip), use.constant("bool", (), (True,)), *carried]
        made = list(inline(translator, use, "body", body, given, label, where))
        verdict = made[0]
        if not isinstance(verdict, Value) or verdict.known is None:
            raise _NotStatic
        going = verdict.known
        carried = made[1 : 1 + len(carried)]
        for rows, value in zip(collected, made[1 + len(carried) :], strict=True):
            assert isinstance(value, Value)
            rows.append(value)
        trip += 1
    if trip == 0 and collected:
        raise _NotStatic  # empty results, whose shapes only the body tells
    return [*carried, *(_stacked(use, rows, 0) for rows in collected)]


def scan(translator: Translator, use: Use, where: Where) -> Results:
    """The body once for every slice of the scanned inputs where their length is known, else as a body."""
    body = _subgraphs(use)["body"]
    if use.version < 9:
        raise Unsupported("Scan of opset 8, which has a batch axis")
    count = use.attributes["num_scan_inputs"]
    states, scanned = use.tensors[:-count], use.tensors[-count:]
    axes = use.attributes.get("scan_input_axes", [0] * count)
    trips = {None if v is None or v.shape is None else v.shape[axis] for v, axis in zip(scanned, axes, strict=True)}
    trip_count = next(iter(trips))
    if len(trips) > 1 and None not in trips:
        raise Unsupported(f"a scan over different numbers of slices: {sorted(filter(None, trips))}")
    if len(trips) > 1 or trip_count is None or not 0 < trip_count <= MAX_TRIPS:
        formal = [_formal(info) for info in body.input]
        return _node(translator, use, {"body": _body(translator, use, "body", body, formal, where)})
    backward = use.attributes.get("scan_input_directions", [0] * count)
    carried: list[Value | list[Value] | None] = list(states)
    outputs = len(body.output) - len(carried)
    collected: list[list[Value]] = [[] for _ in range(outputs)]
    for trip in range(trip_count):
        slices = [
            use.part("Gather", [value, use.scalar(trip_count - 1 - trip if back else trip)], axis=axis)
            for value, axis, back in zip(scanned, axes, backward, strict=True)
        ]
        made = list(inline(translator, use, "body", body, [*carried, *slices], f"{use.name}/{trip}/", where))
        carried = made[: len(carried)]
        for rows, value in zip(collected, made[len(carried) :], strict=True):
            assert isinstance(value, Value)
            rows.append(value)
    axes = use.attributes.get("scan_output_axes", [0] * outputs)
    turned = use.attributes.get("scan_output_directions", [0] * outputs)
    stacked = [
        _stacked(use, rows[::-1] if back else rows, axis)
        for rows, axis, back in zip(collected, axes, turned, strict=True)
    ]
    return [*carried, *stacked]


HANDLERS: dict[str, Callable[[Translator, Use, Where], Results]] = {"If": if_node, "Loop": loop, "Scan": scan}


def _stacked(use: Use, rows: Sequence[Value], axis: int) -> Value:
    parts = [use.part("Unsqueeze", [row, use.ints([axis])]) for row in rows]
    return use.part("Concat", parts, axis=axis)


def _subgraphs(use: Use) -> dict[str, Message]:
    return {attribute.name: attribute.g for attribute in use.node.attribute if attribute.HasField("g")}


def _level(use: Use, role: str, graph: Message, scope: Scope, label: str) -> Level:
    from kgrun.graphs.importers.onnx.translate import names_read

    prefix = use.level.prefix
    inner = None if prefix is None else subgraph_prefix(prefix, use.position, role)
    wanted = names_read(graph.node, (output.name for output in graph.output))
    return Level(scope, use.level.versions, inner, label, wanted, use.level.depth)


def inline(
    translator: Translator,
    use: Use,
    role: str,
    graph: Message,
    inputs: Sequence[Value | list[Value] | None],
    label: str,
    where: Where,
) -> Results:
    """The nodes of subgraph `graph` in place of the node; returns the values of its outputs."""
    scope = Scope({info.name: value for info, value in zip(graph.input, inputs, strict=False)}, use.level.scope)
    level = _level(use, role, graph, scope, label)
    place = (*where, "node", use.position, role)
    translator.initializers(graph, level, place)
    translator.walk(graph.node, level, place)
    return [scope.find(output.name) for output in graph.output]


def _body(translator: Translator, use: Use, role: str, graph: Message, formal: Sequence[Value], where: Where) -> Body:
    """The nodes of subgraph `graph` as a body of its own."""
    emitter = translator.emitter
    outside, emitter.body = emitter.body, Body(inputs=list(formal))
    translator.undecided += 1
    try:
        made = inline(translator, use, role, graph, formal, f"{use.name}/{role}/", where)
        for value in made:
            if not isinstance(value, Value):
                raise Unsupported("a sequence that is decided while the graph runs")
            emitter.body.outputs.append(value)
        return emitter.body
    finally:
        emitter.body = outside
        translator.undecided -= 1


def _formal(info: Message) -> Value:
    """An input of a body. Its shape may change from trip to trip."""
    return Value(info.name, None) if info.type.tensor_type.elem_type in (*ONNX_DTYPES, 0) else _no_tensor(info)


def _no_tensor(info: Message) -> Value:
    raise Unsupported(f"input {info.name!r} of the body is no tensor that kgrun has")


def _node(translator: Translator, use: Use, bodies: dict[str, Body]) -> Results:
    outputs: list[Value | None] = [Value(f"{use.name}.{index}") for index in range(len(use.wanted))]
    attributes = {name: value for name, value in use.attributes.items() if name not in bodies}
    translator.emitter.body.nodes.append(Emitted(use.op, use.name, use.tensors, list(outputs), attributes, bodies))
    return outputs
