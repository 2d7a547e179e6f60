"""Limits of memory: what is refused, why, and how close to the least a plan comes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.cases.conftest import IN, op, relu, together
from tests.graphs.random_graphs import random_graph

# oom-01, oom-03, oom-05


def test_oom_01_a_limit_that_does_not_fit_says_what_is_needed_and_by_whom(kgrun: Any, write: Any) -> None:
    nodes = [op("a", "Neg", "x", "t"), op("b", "Exp", "x", "u"), op("c", "Add", "tu", "v")]
    path = write(relu(dims={"n": 4096}, nodes=[*nodes, op("d", "ReduceSum", "v", "y")]))
    memory = kgrun("plan-memory", path, "--json").json()["memory"]
    least = memory["peak_bytes"]
    assert kgrun("plan-memory", path, "--limit", str(least)).code == 0
    done = kgrun("plan-memory", path, "--limit", str(least - 1), "--offload", "off", "--json")
    assert done.code == 4
    details = done.json()["error"]["details"]
    assert details["lower_bound_bytes"] == memory["lower_bound_bytes"]
    assert details["needed_bytes"] == details["smallest_feasible_limit_bytes"] == least
    assert details["step"] in ("a", "b", "c", "d")
    assert {row["name"] for row in details["culprits"]} & {"t", "u", "v"}
    assert all(row["nbytes"] == 16_384 for row in details["culprits"])
    assert f"{least:,}" in done.error


@pytest.mark.parametrize("seed", range(4))
def test_oom_01_every_limit_from_the_peak_on_is_met(kgrun: Any, write: Any, seed: int) -> None:
    path = write(random_graph(random.Random(seed), 20))
    least = kgrun("plan-memory", path, "--json").json()["memory"]["peak_bytes"]
    for limit in (least, least + 1, 10 * least):
        done = kgrun("plan-memory", path, "--limit", str(limit), "--json")
        assert done.code == 0
        assert done.json()["memory"]["peak_bytes"] <= limit
    assert kgrun("plan-memory", path, "--limit", str(least - 1)).code in (0, 4)


@pytest.mark.parametrize("where", ["workspace", "static", "dynamic"])
def test_oom_03_the_limit_covers_every_class_and_names_the_one_that_does_not_fit(
    kgrun: Any, write: Any, where: str
) -> None:
    large = 1 << 24  # floats: 64 MiB
    nodes = [op("a", "Neg", "x", "t"), op("b", "Relu", "t", "y")]
    graph = relu(dims={"n": large if where == "static" else 8}, nodes=nodes)
    if where == "workspace":
        nodes[0]["workspace"] = [4 * large]
    if where == "dynamic":
        graph["tensors"]["s"] = {"role": "constant", "value": [large, 1]}
        graph["nodes"] = [op("a", "Expand", ["one", "s"], "t"), op("b", "ReduceSum", "t", "y")]
        graph["tensors"]["one"] = IN | {"shape": [1]}
    done = kgrun("plan-memory", write(graph), "--memory-limit", "32MiB", "--json")
    assert done.code == 4
    assert {"workspace": "workspace", "static": "input", "dynamic": "intermediate"}[where] in done.error


def csv(tmp_path: Path, rows: Any) -> Path:
    path = tmp_path / "problem.csv"
    lines = [f"b{i},{lower},{upper},{size}" for i, (lower, upper, size) in enumerate(rows)]
    path.write_text("id,lower,upper,size\n" + "\n".join(lines) + "\n")
    return path


def random_rows(seed: int, count: int = 9) -> list[tuple[int, int, int]]:
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        lower = chance.randrange(6)
        rows.append((lower, lower + 1 + chance.randrange(4), chance.randrange(1, 9)))
    return rows


@pytest.mark.parametrize("seed", range(8))
def test_oom_05_the_limit_is_met_to_the_byte_and_the_verdict_is_honest(kgrun: Any, tmp_path: Path, seed: int) -> None:
    path = csv(tmp_path, random_rows(seed))
    free = kgrun("plan-memory", path, "--json").json()
    best, bound = free["memory"]["peak_bytes"], free["memory"]["lower_bound_bytes"]
    assert bound <= best
    done = kgrun("plan-memory", path, "--limit", str(best), "--json")
    assert done.code == 0
    rows = done.json()["tensors"]
    assert max(row["offset"] + row["nbytes"] for row in rows) <= best
    assert not any(together(a, b) for i, a in enumerate(rows) for b in rows[:i])
    done = kgrun("plan-memory", path, "--limit", str(best - 1), "--json")
    assert done.code == 4
    details = done.json()["error"]["details"]
    assert details["proven"] == (bound > best - 1 or free["memory"]["optimal"])


def test_oom_05_a_plan_that_needs_search_is_found_at_the_lower_bound(kgrun: Any, tmp_path: Path) -> None:
    # Sums never exceed 10, yet first fit by size or by time needs 11 or more: only some orders reach 10.
    rows = [(0, 2, 4), (0, 4, 3), (0, 3, 3), (2, 6, 2), (3, 5, 5), (5, 8, 5), (4, 8, 3), (6, 8, 2)]
    sums = [sum(size for lower, upper, size in rows if lower <= t < upper) for t in range(8)]
    done = kgrun("plan-memory", csv(tmp_path, rows), "--limit", str(max(sums)), "--json")
    assert done.code == 0
    assert done.json()["memory"]["peak_bytes"] == max(sums)
