"""Broken variants of a graph that keep its shape as a file: what a user, a generator or an importer gets wrong."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators import all_schemas

Graph = dict[str, Any]

EXTENTS = (0, 0, 1, 1, 2, 3, 7, 8, 33, -1, -7, 4096, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, 2**64 - 1)
EXPRESSIONS = (
    "n",
    "n * 0",
    "n - 1",
    "n // 0",
    "n % 0",
    "cdiv(n, 0)",
    "-n",
    "n * n * n * n * n * n * n",
    "missing",
    "2 * 4",
)
NUMBERS = (0, 1, -1, 2, -2, 3, 5, 7, -8, 63, 64, 2**31, -(2**31), 2**62, -(2**63), 0.5, -0.0, 1e308, -1e-308)
WORDS = ("", "x", "nan", "inf", "float32", "SAME_UPPER", "VALID", "linear", "tanh", "NOTSET", "reflect", "LEFT", "\0")
ATTRIBUTES = (
    "axis", "axes", "perm", "keepdims", "shape", "value", "to", "dtype", "alpha", "beta", "transA", "transB", "group",
    "kernel_shape", "pads", "strides", "dilations", "ceil_mode", "auto_pad", "epsilon", "mode", "split", "num_outputs",
    "start", "end", "starts", "ends", "allowzero", "count_include_pad", "noop_with_empty_axes", "direction",
)  # fmt: skip
DATA = (
    "missing.npy", "data/missing.npz#images", "data/digits.npz", "data/digits.npz#nothing", "data/digits.npz#labels",
    "data/digits.safetensors#conv1.weight", "data/astronaut.npy", "../data.npy", "/dev/zero", "/etc/passwd", ".", "#",
    "data/digits.yaml", "digits.yaml", "data\0.npy", "data/encoder.npz#../x", "a" * 300 + ".npy",
)  # fmt: skip
INITS: tuple[Any, ...] = (
    {"fill": 0}, {"fill": "nan"}, {"fill": 300}, {"fill": -1}, {"fill": 1e300}, {"fill": True}, {"uniform": [0, 1]},
    {"uniform": [1, 0]}, {"uniform": [-1e308, 1e308]}, {"normal": [0, -1]}, {"normal": [0, 1e300]},
    {"integers": [0, 0]}, {"integers": [-(2**63), 2**63]}, {"integers": [0, 2**64 - 1]}, {"arange": [0, 1]},
    {"arange": [2**63 - 1, 2**63 - 1]}, {"arange": [1e308, 1e308]}, {"arange": [0, 0.1]},
)  # fmt: skip


def structural_mutants(graph: Graph, count: int, seed: int) -> Iterator[Graph]:
    """`count` mutants of `graph`, each changed in one to three places; the same for the same `seed`."""
    chance = random.Random(f"{seed}:{graph.get('name')}")
    for _ in range(count):
        mutant = copy.deepcopy(graph)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            chance.choice(_EDITS)(mutant, chance)
        yield mutant


def _tensor(graph: Graph, chance: random.Random) -> Any:
    tensors = graph.get("tensors") or {"none": {}}
    return tensors[chance.choice(sorted(tensors))]


def _node(graph: Graph, chance: random.Random) -> Any:
    return chance.choice(graph["nodes"]) if graph.get("nodes") else {}


def _names(graph: Graph) -> list[str]:
    made = [name for node in graph.get("nodes", []) for name in node.get("outputs", []) if isinstance(name, str)]
    return [*graph.get("tensors", {}), *made] or ["nothing"]


def _extent(chance: random.Random) -> Any:
    return chance.choice(EXTENTS) if chance.random() < 0.8 else chance.choice(EXPRESSIONS)


def _dim(graph: Graph, chance: random.Random) -> None:
    dims = graph.setdefault("dims", {})
    name = chance.choice([*dims, "n"])
    dims[name] = chance.choice([{"default": _extent(chance)}, {"default": 8, "min": 9}, {}, 5, chance.choice(EXTENTS)])


def _shape(graph: Graph, chance: random.Random) -> None:
    shape = _tensor(graph, chance).get("shape")
    if not isinstance(shape, list):
        return
    edit = chance.randrange(5)
    if edit < 2 and shape:
        shape[chance.randrange(len(shape))] = _extent(chance)
    elif edit == 2:
        shape.insert(chance.randrange(len(shape) + 1), _extent(chance))
    elif edit == 3 and shape:
        del shape[chance.randrange(len(shape))]
    else:
        shape[:] = [_extent(chance) for _ in range(chance.choice((0, 1, 2, 4, 70)))]


def _dtype(graph: Graph, chance: random.Random) -> None:
    _tensor(graph, chance)["dtype"] = chance.choice([*DTYPES, "float", "string"])


def _source(graph: Graph, chance: random.Random) -> None:
    tensor = _tensor(graph, chance)
    for key in ("data", "init", "value", "string"):
        tensor.pop(key, None)
    kind = chance.choice(["data", "data", "init", "value", "string", "none"])
    if kind == "data":
        tensor["data"] = chance.choice(DATA)
    elif kind == "init":
        tensor["init"] = chance.choice(INITS)
    elif kind == "value":
        tensor["value"] = chance.choice([0, 1.5, True, "n", "nan", [], [[1], [2]], [[1], [2, 3]], [0] * 100, -1, 2**63])
    elif kind == "string":
        tensor["string"] = chance.choice(["", "hello", "\0", "é" * 500])


def _tensor_flag(graph: Graph, chance: random.Random) -> None:
    tensor = _tensor(graph, chance)
    key, value = chance.choice([
        ("role", chance.choice(["input", "parameter", "constant", "output", "intermediate"])),
        ("alias_of", chance.choice(_names(graph))), ("valid", False), ("lifelong", True), ("pin", True),
        ("no_reuse", True), ("location", "host"), ("offload", "always"), ("cache", {"rows": 4}),
        ("max_shape", [_extent(chance)]), ("from_graph", {"graph": "g", "output": "y"}),
    ])  # fmt: skip
    tensor[key] = value


def _order(graph: Graph, chance: random.Random) -> None:
    chance.shuffle(graph.get("nodes", []))


def _nodes(graph: Graph, chance: random.Random) -> None:
    nodes = graph.get("nodes", [])
    if not nodes:
        return
    at = chance.randrange(len(nodes))
    edit = chance.randrange(4)
    if edit == 0:
        del nodes[at]
    elif edit == 1:
        nodes.append(copy.deepcopy(nodes[at]))
    elif edit == 2:
        twin = copy.deepcopy(nodes[at])
        twin["name"] += "_twin"
        twin["outputs"] = [name and f"{name}_twin" for name in twin.get("outputs", [])]
        nodes.insert(at, twin)
    else:
        for _ in range(chance.choice((1, 40))):
            last = nodes[-1]
            name = next((n for n in last.get("outputs", []) if isinstance(n, str)), "x")
            nodes.append(
                {"name": f"tail{len(nodes)}", "op": "Neg", "inputs": [name], "outputs": [f"{name}_{len(nodes)}"]}
            )


def _operator(graph: Graph, chance: random.Random) -> None:
    node = _node(graph, chance)
    if "op" in node:
        node["op"] = chance.choice([*all_schemas(), "AllReduce", "If", "Loop", "Nothing", "relu", "LSTM", "NonZero"])


def _edges(graph: Graph, chance: random.Random) -> None:
    node = _node(graph, chance)
    key = chance.choice(["inputs", "inputs", "outputs"])
    names = node.get(key)
    if not isinstance(names, list):
        return
    edit = chance.randrange(5)
    if edit == 0 and names:
        names[chance.randrange(len(names))] = chance.choice([*_names(graph), None, "missing", ["x", [None]]])
    elif edit == 1 and names:
        del names[chance.randrange(len(names))]
    elif edit == 2:
        names.append(chance.choice([*_names(graph), None]))
    elif edit == 3:
        chance.shuffle(names)
    else:
        names[:] = names * chance.choice((0, 2, 50))


def _inplace(graph: Graph, chance: random.Random) -> None:
    node = _node(graph, chance)
    pairs = [(o, i) for o in node.get("outputs", []) for i in node.get("inputs", []) if isinstance(o, str)]
    pairs = [pair for pair in pairs if isinstance(pair[1], str)] or [("y", "x")]
    output, source = chance.choice([*pairs, (chance.choice(_names(graph)), chance.choice(_names(graph)))])
    node.setdefault("inplace", {})[output] = source


def _node_flag(graph: Graph, chance: random.Random) -> None:
    node = _node(graph, chance)
    names = [each.get("name", "x") for each in graph.get("nodes", [])] or ["x"]
    key, value = chance.choice([
        ("clear", [chance.choice(_names(graph))]), ("after", [chance.choice(names)]),
        ("stream", chance.choice(["comm", "s", 3])),
        ("workspace", [_extent(chance)]), ("workspace", [{"nbytes": _extent(chance), "clear": True}]), ("nop", True),
        ("nop", False), ("skip_nop_op_addr", False), ("no_reuse", True), ("offload", True), ("dynamic", True),
        ("update_async", True), ("flops", _extent(chance)), ("bytes", _extent(chance)), ("collective", {"group": "g"}),
        ("name", chance.choice(names)), ("queue", "q"), ("subgraphs", {"body": "b"}),
    ])  # fmt: skip
    node[key] = value


def _attribute(graph: Graph, chance: random.Random) -> None:
    node = _node(graph, chance)
    if "op" not in node:
        return
    attributes = node.setdefault("attributes", {})
    name = chance.choice([*attributes, *attributes, *attributes, chance.choice(ATTRIBUTES)])
    old = attributes.get(name)
    many = isinstance(old, list) if old is not None else chance.random() < 0.5
    if chance.random() < 0.15:
        attributes.pop(name, None)
    elif many:
        attributes[name] = [chance.choice(NUMBERS[:14]) for _ in range(chance.choice((0, 1, 2, 2, 3, 4, 8)))]
    else:
        attributes[name] = chance.choice([*NUMBERS, *WORDS, True])


def _launch(graph: Graph, chance: random.Random) -> None:
    node = _node(graph, chance)
    if "kernel" not in node:
        return
    edit = chance.randrange(6)
    if edit == 0:
        node[chance.choice(["grid", "block"])] = [_extent(chance) for _ in range(chance.choice((1, 2, 3, 4)))]
    elif edit == 1:
        node["shared"] = _extent(chance)
    elif edit == 2 and isinstance(node.get("args"), list):
        node["args"].append(
            chance.choice([None, "missing", {"int32": 2**40}, {"float16": 1e9}, {"float4": [0, 0, 1]}, {"bytes": "0"},
                           {"workspace": 3}, {"struct": []}, {"int8": "n"}, {"bool": 2}, {"uint8": -1}])
        )  # fmt: skip
    elif edit == 3 and isinstance(node.get("args"), list) and node["args"]:
        del node["args"][chance.randrange(len(node["args"]))]
    elif edit == 4:
        node["kernel"] = "missing"
    else:
        node["cluster"] = [_extent(chance)]


def _top(graph: Graph, chance: random.Random) -> None:
    names = _names(graph)
    key, value = chance.choice([
        ("outputs", [chance.choice(names)]), ("outputs", []), ("outputs", names), ("inputs", [chance.choice(names)]),
        ("contiguous", [[chance.choice(names), chance.choice(names)]]), ("contiguous", [names]),
        ("groups", {"g": [0, 0]}),
        ("queues", {"q": {"items": [chance.choice(names)]}}), ("nodes", []), ("tensors", {}), ("kgrun", 2),
        ("name", '\x1b[31m"\\ <T>|`'), ("graphs", {"b": {"nodes": [], "outputs": []}}),
    ])  # fmt: skip
    graph[key] = value


_EDITS: tuple[Callable[[Graph, random.Random], None], ...] = (
    _dim, _shape, _shape, _shape, _dtype, _dtype, _source, _tensor_flag, _order, _nodes, _operator, _operator, _edges,
    _edges, _inplace, _inplace, _node_flag, _node_flag, _attribute, _attribute, _attribute, _launch, _top,
)  # fmt: skip
