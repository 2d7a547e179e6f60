"""Every collective against numpy, for every dtype it allows: one graph, run by every rank of a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.dtypes import DTYPES, WIDE_FLOATS
from kgrun.graphs.operators.collectives import REDUCED, REDUCTIONS
from kgrun.runtime.collectives.world import World
from kgrun.runtime.devices.base import Device
from kgrun.runtime.session import Session
from tests.support import graph

Array = np.ndarray[Any, Any]
Case = tuple[dict[str, Any], list[list[Array]], list[Array]]  # node, inputs by tensor and rank, results of this rank
_NUMPY = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "avg": np.mean}
_MOVED = ("AllGather", "Broadcast", "AllToAll")


def data(dtype: str, shape: tuple[int, ...], seed: int, ranks: int) -> list[Array]:
    """Small whole numbers: sums and products of them are exact in every type."""
    rng = np.random.default_rng([seed, *shape])
    low = 0 if DTYPES[dtype].kind in ("uint", "bool") else -2
    return [rng.integers(low, 3 if dtype != "bool" else 2, shape).astype(numpy_dtype(dtype)) for _ in range(ranks)]


def reduced(reduction: str, parts: list[Array]) -> Array:
    """The reduction of all parts, in float64 or int64, as the parts' type."""
    kind = parts[0].dtype
    wide = np.float64 if kind.kind not in "iu" else np.int64
    return np.asarray(_NUMPY[reduction](np.stack(parts).astype(wide), axis=0)).astype(kind)


def expected(op: str, parts: list[Array], rank: int, reduction: str, root: int) -> Array:
    """What rank `rank` of the group must get from what all ranks give."""
    count = len(parts)
    if op == "AllReduce":
        return reduced(reduction, parts)
    if op == "Reduce":
        return reduced(reduction, parts) if rank == root else np.zeros_like(parts[0])
    if op == "ReduceScatter":
        return np.split(reduced(reduction, parts), count)[rank]
    if op == "AllGather":
        return np.concatenate(parts)
    if op == "Broadcast":
        return parts[root]
    return np.concatenate([np.split(part, count)[rank] for part in parts])


def cases(rank: int, size: int) -> Iterator[Case]:
    """Operators × dtypes × reductions, then groups, several tensors, empty ones, scalars, and pairs."""
    seed = 0
    for dtype in DTYPES:
        for op in ("AllReduce", "Reduce", "ReduceScatter", *_MOVED):
            if op not in _MOVED and dtype not in REDUCED:
                continue
            for reduction in REDUCTIONS if op not in _MOVED else ("sum",):
                if reduction == "avg" and dtype not in WIDE_FLOATS:
                    continue
                seed += 1
                root = seed % size if op in ("Broadcast", "Reduce") else 0
                yield _case(op, [data(dtype, (2 * size, 3), seed, size)], rank, reduction, root)
    several = [data("float32", shape, 7, size) for shape in ((5,), (300,), (), (2, 2))]
    yield _case("AllReduce", several, rank, "avg", 0)
    yield _case("Broadcast", several, rank, "sum", size - 1)
    yield _case("AllReduce", [data("int32", (0, 4), 1, size), data("int32", (3,), 2, size)], rank, "max", 0)
    yield _case("AllGather", [data("int16", (3, 2), 3, size), data("int16", (1,), 4, size)], rank, "sum", 0)
    backwards = list(range(size))[::-1]
    parts = data("float64", (size, 2), 5, size)
    place = backwards.index(rank)
    node = _node("AllGather", "sum", 0) | {"collective": {"group": "backwards"}}
    yield node, [parts], [np.concatenate([parts[r] for r in backwards])]
    node = _node("ReduceScatter", "sum", 0) | {"collective": {"group": "backwards"}}
    yield node, [parts], [np.split(reduced("sum", parts), size)[place]]
    if size > 2:
        mine = [r for r in range(size) if r % 2 == rank % 2]
        node = _node("AllReduce", "sum", 0) | {"collective": {"group": "alike"}}
        yield node, [parts], [reduced("sum", [parts[r] for r in mine])]


def _node(op: str, reduction: str, root: int) -> dict[str, Any]:
    node: dict[str, Any] = {"op": op}
    if op not in _MOVED:
        node["attributes"] = {"reduction": reduction}
    if op in ("Broadcast", "Reduce"):
        node["collective"] = {"root": root}
    return node


def _case(op: str, tensors: list[list[Array]], rank: int, reduction: str, root: int) -> Case:
    results = [expected(op, parts, rank, reduction, root) for parts in tensors]
    return _node(op, reduction, root), tensors, results


def _pairs(
    rank: int, size: int, tensors: dict[str, Any], given: dict[str, Array], wanted: dict[str, Array]
) -> list[dict[str, Any]]:
    """Everybody sends to the next and hears from the one before; the ends of the chain talk to nobody. Then a ring."""
    parts = data("float16", (7,), 9, size)
    kind = {"dtype": "float16", "shape": [7]}
    tensors |= {"s": {"role": "input", **kind}, "r": dict(kind)}
    given["s"] = parts[rank]
    wanted["r"] = parts[rank - 1] if rank else np.zeros(7, np.float16)
    chain = [
        {"name": "send", "op": "Send", "inputs": ["s"], "collective": {"peer": "rank + 1"}},
        {"name": "receive", "op": "Recv", "outputs": ["r"], "collective": {"peer": "rank - 1"}, "after": ["send"]},
        {"name": "meet", "op": "Barrier", "after": ["receive"]},
    ]
    if size == 1:
        return chain
    tensors["ring"] = dict(kind)
    wanted["ring"] = parts[(rank + 1) % size]
    back, on = {"peer": "(rank + world_size - 1) % world_size"}, {"peer": "(rank + 1) % world_size"}
    ring: list[dict[str, Any]] = [
        {"name": "give", "op": "Send", "inputs": ["s"], "collective": back},
        {"name": "take", "op": "Recv", "outputs": ["ring"], "collective": on},
    ]
    ring = ring[::-1] if rank % 2 else ring  # on a GPU a send may wait for its peer
    return [*chain, ring[0] | {"after": ["meet"]}, ring[1] | {"after": [ring[0]["name"]]}]


def _two_hosts(
    rank: int, tensors: dict[str, Any], given: dict[str, Array], wanted: dict[str, Array]
) -> list[dict[str, Any]]:
    """Four ranks as two hosts of two: reduced inside, between, and gathered inside."""
    parts = data("float32", (6, 5), 11, 4)
    tensors["g"] = {"role": "input", "dtype": "float32", "shape": [6, 5]}
    given["g"], wanted["everything"] = parts[rank], reduced("sum", parts)
    host, rail = {"collective": {"group": "host"}}, {"collective": {"group": "rail"}}
    return [
        {"name": "in_host", "op": "ReduceScatter", "inputs": ["g"], "outputs": ["g_part"], **host},
        {"name": "between", "op": "AllReduce", "inputs": ["g_part"], "outputs": ["g_sum"], **rail},
        {"name": "back", "op": "AllGather", "inputs": ["g_sum"], "outputs": ["everything"], **host},
    ]


def check(world: World, device: str | Device = "cpu") -> None:
    """Run them all twice in one session on `device`, and compare."""
    rank, size = world.info.rank, world.info.size
    nodes, tensors, given, wanted = [], {}, {}, {}
    for i, (node, operands, results) in enumerate(cases(rank, size)):
        inputs, outputs = [f"x{i}_{j}" for j in range(len(operands))], [f"y{i}_{j}" for j in range(len(results))]
        for name, parts in zip(inputs, operands, strict=True):
            own = parts[rank]
            tensors[name] = {"role": "input", "dtype": own.dtype.name, "shape": list(own.shape)}
            given[name] = own
        wanted |= dict(zip(outputs, results, strict=True))
        nodes.append({"name": f"n{i}", "inputs": inputs, "outputs": outputs, **node})
    nodes += _pairs(rank, size, tensors, given, wanted)
    if size == 4:
        nodes += _two_hosts(rank, tensors, given, wanted)
    nodes.append({"name": "mine", "op": "Shard", "inputs": ["whole"], "outputs": ["part"]})
    whole = np.arange(4 * size, dtype=np.int16).reshape(2 * size, 2)
    tensors["whole"] = {"role": "input", "dtype": "int16", "shape": list(whole.shape)}
    given["whole"], wanted["part"] = whole, np.split(whole, size)[rank]
    groups = {"backwards": [f"world_size - 1 - {i}" for i in range(size)]}
    groups |= (
        {"host": ["rank // 2 * 2", "rank // 2 * 2 + 1"], "rail": ["rank % 2", "rank % 2 + 2"]} if size == 4 else {}
    )
    groups["alike"] = [f"rank % 2 + {i}" for i in range(0, size, 2)]
    made = graph(nodes, tensors, list(wanted), groups=groups)
    for memory in ("planned", "pool", "none") if size < 3 else ("planned",):
        with Session(made, device=device, dims={"rank": rank, "world_size": size}, memory=memory) as session:
            world.settle()
            report = session.run(given, iterations=2, warmup=1, timing="events", poison=True)
        for name, result in wanted.items():
            got = report.outputs[name]
            assert got.dtype == result.dtype, name
            np.testing.assert_array_equal(
                got, result, err_msg=f"{memory} {name} {nodes[int(name[1:].split('_')[0])] if name[0] == 'y' else ''}"
            )
