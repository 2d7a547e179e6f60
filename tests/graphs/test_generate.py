"""The generators themselves: what they make is well-formed, deterministic and of the promised size."""

from __future__ import annotations

import random

import pytest

from kgrun.graphs.schema.graph import KernelGraph
from tests.graphs.generate import chain_graph
from tests.graphs.random_graphs import random_graph

VIEWS = {"Reshape", "Flatten", "Unsqueeze", "Identity"}


def overwritten_reads(graph: KernelGraph) -> list[str]:
    """Nodes that read a tensor whose memory an earlier node took over, under any of its names."""
    root: dict[str, str] = {}
    gone: set[str] = set()
    faults = []
    for node in graph.nodes:
        reads = [name for name in node.inputs if isinstance(name, str)]
        faults += [node.name for name in reads if name in gone]
        (output,) = [name for name in node.outputs if name is not None]
        if node.inplace:
            taken = root.get(node.inplace[output], node.inplace[output])
            gone |= {taken} | {name for name, first in root.items() if first == taken}
            root[output] = taken
        elif getattr(node, "op", None) in VIEWS:
            root[output] = root.get(reads[0], reads[0])
    return faults + [name for name in graph.outputs if name in gone]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("kernels", [1, 9, 100, 1000])
def test_chain_graph_has_the_promised_number_of_running_nodes(kernels: int, raw: bool) -> None:
    graph = KernelGraph.model_validate(chain_graph(kernels, raw=raw))
    assert sum(getattr(node, "op", None) != "Reshape" for node in graph.nodes) == kernels
    assert overwritten_reads(graph) == []
    read = {name for node in graph.nodes for name in node.inputs} | set(graph.outputs)
    assert {name for node in graph.nodes for name in node.outputs} <= read


def test_random_graphs_are_well_formed() -> None:
    kinds: set[str] = set()
    for seed in range(200):
        graph = KernelGraph.model_validate(random_graph(random.Random(seed)))
        known = {name for name, tensor in graph.tensors.items()}
        for node in graph.nodes:
            assert set(node.inputs) <= known
            assert not known & set(node.outputs)
            known |= {name for name in node.outputs if name is not None}
        assert 1 <= len(graph.outputs) <= 4
        assert overwritten_reads(graph) == []
        kinds |= {getattr(node, "op", "") for node in graph.nodes}
        kinds |= {mark for node in graph.nodes for mark in ("inplace", "workspace", "no_reuse") if getattr(node, mark)}
    assert len(kinds) == 19 + 3  # operators and marks


def test_a_seed_decides_the_graph() -> None:
    assert random_graph(random.Random(7)) == random_graph(random.Random(7)) != random_graph(random.Random(8))
