"""The audit of a captured graph: programmatic edges between steps become full, those inside a library call stay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kgrun.runtime.devices import cuda_graph

FULL, PROGRAMMATIC = 0, 1


@pytest.mark.parametrize(
    ("ends", "kinds", "replaced"),
    [
        ({1, 3}, (PROGRAMMATIC, PROGRAMMATIC), [(1, 2)]),  # 2 -> 3 lies inside one call
        ({1, 2, 3}, (PROGRAMMATIC, PROGRAMMATIC), [(1, 2), (2, 3)]),
        ({1, 2, 3}, (FULL, PROGRAMMATIC), [(2, 3)]),
        ({1, 2, 3}, (FULL, FULL), []),
    ],
)
def test_edges_between_steps_become_full(
    monkeypatch: pytest.MonkeyPatch, ends: set[int], kinds: tuple[int, int], replaced: list[tuple[int, int]]
) -> None:
    edges = [(1, 2), (2, 3)]
    log: list[tuple[str, int, int, Any]] = []
    data = [SimpleNamespace(type=kind) for kind in kinds]

    def call(name: str, _: Any, *arguments: Any) -> Any:
        if name == "cuGraphGetEdges":
            sources, targets = zip(*edges, strict=True)
            return [list(sources), list(targets), data, len(edges)]
        (source,), (target,), given, _ = arguments
        log.append((name, source, target, given))
        return None

    types = SimpleNamespace(CU_GRAPH_DEPENDENCY_TYPE_DEFAULT=FULL)
    monkeypatch.setattr(cuda_graph, "_call", call)
    monkeypatch.setattr(cuda_graph, "_api", lambda: SimpleNamespace(CUgraphDependencyType=types))
    assert cuda_graph._replace_programmatic_edges("graph", ends) == len(replaced)
    assert [(source, target) for name, source, target, _ in log if name == "cuGraphRemoveDependencies"] == replaced
    added = [(source, target, given) for name, source, target, given in log if name == "cuGraphAddDependencies"]
    assert added == [(*edge, None) for edge in replaced]
