"""The order in which nodes are walked: the file's, or one in which each comes after those that make what it reads.

ONNX wants nodes sorted; ONNX Runtime sorts them itself, so that tools that add casts at a graph's end go unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgrun.graphs.data_onnx import Message


def ordered(nodes: Iterable[Message]) -> list[tuple[int, Message]]:
    """Nodes with their positions in the file; where they are not sorted, each moves before the first that reads it.

    What a cycle reads of itself stays as it is: it is not defined when it is walked.
    """
    listed = list(nodes)
    made = {name: at for at, node in enumerate(listed) for name in node.output if name}
    before = [[made[name] for name in _reads(node) if name in made] for node in listed]
    if all(source < at for at, sources in enumerate(before) for source in sources):
        return list(enumerate(listed))
    return [(at, listed[at]) for at in _sorted(before)]


def _sorted(before: Sequence[Sequence[int]]) -> list[int]:
    """Depth first, in the order of the file; without recursion, since chains may be long."""
    found: list[int] = []
    entered = [False] * len(before)
    for first in range(len(before)):
        if entered[first]:
            continue
        entered[first] = True
        stack = [(first, iter(before[first]))]
        while stack:
            at, sources = stack[-1]
            source = next((each for each in sources if not entered[each]), None)
            if source is None:
                found.append(at)
                stack.pop()
            else:
                entered[source] = True
                stack.append((source, iter(before[source])))
    return found


def _reads(node: Message) -> Iterable[str]:
    """Names that the node reads, its subgraphs too; names that these define themselves do no harm."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            own = {info.name for info in graph.input} | {name for each in graph.node for name in each.output}
            for each in graph.node:
                yield from (name for name in _reads(each) if name not in own)
            yield from (output.name for output in graph.output if output.name not in own)
