"""The oracle across modes: planned, pool, none and node by node give the repository's examples the same bits (U9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.load import load_graph
from kgrun.runtime.sessions import open_session

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
MODES = ("planned", "pool", "none", "single")


def outputs(path: Path, memory: str) -> dict[str, np.ndarray[Any, Any]]:
    with open_session(load_graph(path), device="cpu", memory=memory) as session:
        return session.run(iterations=2, per_step=False).outputs


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_U9_S127_examples_give_the_same_bits_in_every_mode(path: Path) -> None:
    wanted = outputs(path, MODES[0])
    assert wanted
    graph = load_graph(path)
    fed = graph.queues or any(spec.cache is not None for spec in graph.tensors.values())
    for memory in MODES[1:3] if fed else MODES[1:]:  # queues and caches of embeddings need a plan
        found = outputs(path, memory)
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            assert found[name].tobytes() == array.tobytes(), (memory, name)
