"""`--memory pool`, its unit, and the limits of device and host memory on the command line."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kgrun.cli.render.schema import report_schema
from tests.graphs.random_graphs import random_graph


@pytest.fixture
def large(graph_file: Any) -> Any:
    """A graph whose pool is larger than its best plan."""
    return graph_file(**random_graph(random.Random(3), 60))


def plan(kgrun: Any, path: Any, *options: str) -> Any:
    return kgrun("plan-memory", path, "--json", *options).json()


def test_S71_the_plan_of_a_pool_has_blocks_statistics_and_holders(kgrun: Any, large: Any, faults: Any) -> None:
    document = plan(kgrun, large, "--memory", "pool")
    assert faults(document, {"$ref": "#/$defs/plan_memory", "$defs": report_schema()["$defs"]}) == []
    memory = document["memory"]
    pool = memory["pool"]
    assert memory["planner"] == "pool"
    assert sum(pool["blocks"]) == memory["dynamic_bytes"] == pool["peak_used_bytes"] + pool["idle_bytes"]
    assert 0 <= pool["fragmentation"] < 1
    assert pool["largest_idle_bytes"] <= pool["idle_bytes"]
    assert pool["holders"][0]["nbytes"] == max(row["nbytes"] for row in pool["holders"])
    assert [each["fits"] for each in pool["attempts"]] == [True]
    assert "pool" not in plan(kgrun, large)["memory"]
    text = kgrun("plan-memory", large, "--memory", "pool").out
    for words in ("pool         1 block", "grows by 512 MiB", "most in use", "held by", "by pool in"):
        assert words in text


def test_S69_the_unit_decides_the_blocks(kgrun: Any, large: Any) -> None:
    pool = plan(kgrun, large, "--memory", "pool", "--pool-unit", "4KiB")["memory"]["pool"]
    assert pool["unit_bytes"] == 4096
    assert len(pool["blocks"]) > 1
    done = kgrun("plan-memory", large, "--pool-unit", "4KiB", "--json")
    assert (done.code, done.json()["error"]["code"]) == (2, "KG240")


def test_U5_oom_01_a_pool_without_room_says_what_who_and_where(kgrun: Any, large: Any) -> None:
    best = plan(kgrun, large)["memory"]["peak_bytes"]
    done = kgrun("plan-memory", large, "--memory", "pool", "--memory-limit", str(best), "--json")
    assert done.code == 4
    error = done.json()["error"]
    told = error["details"]
    assert error["code"] == "KG401"
    assert told["needed_bytes"] > max(told["available_bytes"], told["largest_idle_bytes"])
    assert told["step"]
    assert told["holders"]
    assert told["planned_bytes"] <= best < told["smallest_feasible_limit_bytes"]
    fitting = str(told["smallest_feasible_limit_bytes"])
    assert plan(kgrun, large, "--memory", "pool", "--memory-limit", fitting)["memory"]["peak_bytes"] <= int(fitting)
    assert kgrun("explain", large, "--memory", "pool").code == 0


def test_a_run_from_a_pool_is_the_planned_run_bit_by_bit(kgrun: Any, large: Any) -> None:
    run = ("execute", large, "--device", "cpu", "--json")
    planned, pooled = kgrun(*run).json(), kgrun(*run, "--memory", "pool", "--pool-unit", "4KiB").json()
    assert planned["outputs"] == pooled["outputs"]
    memory = pooled["memory"]
    assert memory["measured_peak_bytes"] == memory["peak_bytes"]
    limit = str(memory["peak_bytes"])
    assert kgrun(*run, "--memory", "pool", "--pool-unit", "4KiB", "--memory-limit", limit).code == 0


def test_the_host_limit_ends_a_run_with_exit_4(kgrun: Any, large: Any) -> None:
    run = ("execute", large, "--device", "cpu", "--json")
    done = kgrun(*run, "--host-memory-limit", "16")
    assert (done.code, done.json()["error"]["code"]) == (4, "KG404")
    assert kgrun(*run, "--host-memory-limit", "10MiB").code == 0
    assert kgrun(*run, "--host-memory-limit", "ten").code == 2
