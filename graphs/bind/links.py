"""Who writes and who reads each tensor, and an order in which the nodes can run."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kgrun.graphs.bind.presets import inplace_of
from kgrun.graphs.control import captured
from kgrun.graphs.errors import GraphError, did_you_mean
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph


@dataclass(frozen=True, slots=True)
class Links:
    """Producers and consumers by file position.

    Attributes:
        inputs: of each node, nested lists flattened (S14).
        producer: tensor name -> position of the node that writes it.
        readers: tensor name -> positions of the nodes that read it, or whose bodies do, ascending.
        predecessors: of each node: producers of its inputs, `after`, readers of what it overwrites in place.
        order: positions in execution order.
    """

    inputs: tuple[tuple[str | None, ...], ...]
    producer: dict[str, int]
    readers: dict[str, list[int]]
    predecessors: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]


def link(graph: KernelGraph) -> Links:
    """Find producers, readers and a stable topological order: among nodes that are ready, the file's order decides.

    Raises:
        GraphError: KG340 for a node name used twice, KG341 for a tensor written twice, KG342 for a cycle, KG343 for a
            name that nothing defines, KG345 for an in-place output whose input is read further down the file.
    """
    nodes = graph.nodes
    positions = _node_positions(graph)
    inputs = tuple(tuple(flatten(node.inputs)) for node in nodes)
    producer = _producers(graph)
    readers: dict[str, list[int]] = {}
    reads = [(*names, *captured(graph, node)) for names, node in zip(inputs, nodes, strict=True)]
    for position, names in enumerate(reads):
        for name in dict.fromkeys(names):
            if name is not None:
                readers.setdefault(name, []).append(position)
    predecessors = []
    for position, node in enumerate(nodes):
        before = {producer[name] for name in reads[position] if name is not None and name in producer}
        for i, name in enumerate(node.after):
            if name not in positions:
                raise GraphError(
                    f"node {node.name!r} runs after {name!r}, which does not exist",
                    code="KG343",
                    where=graph.place("nodes", position, "after", i),
                    help=did_you_mean(name, positions),
                )
            before.add(positions[name])
        overwritten = inplace_of(graph, node, inputs[position])
        before.update(_readers_before_overwriting(graph, position, overwritten, readers))
        predecessors.append(tuple(sorted(before)))
    return Links(inputs, producer, readers, tuple(predecessors), _topological_order(graph, predecessors))


def flatten(inputs: Sequence[object]) -> Iterator[str | None]:
    """Names in order, nested lists opened."""
    for item in inputs:
        if isinstance(item, list):
            yield from flatten(item)
        else:
            assert item is None or isinstance(item, str)
            yield item


def _node_positions(graph: KernelGraph) -> dict[str, int]:
    positions: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        first = positions.setdefault(node.name, position)
        if first != position:
            raise GraphError(
                f"node name {node.name!r} is used twice, by nodes[{first}] and nodes[{position}]",
                code="KG340",
                where=graph.place("nodes", position, "name"),
            )
    return positions


def _producers(graph: KernelGraph) -> dict[str, int]:
    producer: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        for i, name in enumerate(node.outputs):
            if name is None:
                continue
            if name in producer:
                raise GraphError(
                    f"tensor {name!r} is written twice, by {graph.nodes[producer[name]].name!r} and {node.name!r}",
                    code="KG341",
                    where=graph.place("nodes", position, "outputs", i),
                    help="give each result a name of its own; `inplace` lets two names share their memory",
                )
            producer[name] = position
    return producer


def _readers_before_overwriting(
    graph: KernelGraph, position: int, overwritten: Mapping[str, str], readers: dict[str, list[int]]
) -> Iterator[int]:
    """Readers of what the node overwrites: they want the old value, so they run first.

    A reader further down the file may mean either value: that is refused rather than guessed.
    """
    for output, name in overwritten.items():
        for reader in readers.get(name, ()):
            if reader == position:
                continue
            if reader > position:
                later = graph.nodes[reader].name
                raise GraphError(
                    f"{graph.nodes[position].name!r} overwrites {name!r} in place, but {later!r} reads it further down",
                    code="KG345",
                    where=graph.place("nodes", position, "inplace", output),
                    help=f"read {output!r} there for the new value, or put {later!r} first for the old one",
                )
            yield reader


def _topological_order(graph: KernelGraph, predecessors: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Kahn's algorithm with a heap of positions."""
    waiting = [len(before) for before in predecessors]
    successors: list[list[int]] = [[] for _ in predecessors]
    for position, before in enumerate(predecessors):
        for p in before:
            successors[p].append(position)
    ready = [position for position, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        position = heapq.heappop(ready)
        order.append(position)
        for successor in successors[position]:
            waiting[successor] -= 1
            if waiting[successor] == 0:
                heapq.heappush(ready, successor)
    if len(order) < len(predecessors):
        cycle = _find_cycle(predecessors, {p for p, count in enumerate(waiting) if count > 0})
        names = " → ".join(graph.nodes[p].name for p in [*cycle, cycle[0]])
        raise GraphError(f"the nodes form a cycle: {names}", code="KG342", where=graph.place("nodes", cycle[0]))
    return tuple(order)


def _find_cycle(predecessors: Sequence[tuple[int, ...]], stuck: set[int]) -> list[int]:
    # Every stuck node has a stuck predecessor, so walking backwards must come round.
    seen: dict[int, int] = {}
    walk: list[int] = []
    position = min(stuck)
    while position not in seen:
        seen[position] = len(walk)
        walk.append(position)
        position = next(p for p in predecessors[position] if p in stuck)
    cycle = walk[seen[position] :][::-1]
    start = cycle.index(min(cycle))
    return cycle[start:] + cycle[:start]
