"""What a memory limit says in every mode: numbers that hold in that mode, sums that add up, and why nothing moves."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.cases.conftest import op, relu


@pytest.fixture
def chain(write: Any) -> Any:
    """Static 12,288 bytes, dynamic 4,096 as planned (in place), 12,288 shared without that, 20,480 apart."""
    spec = {"dtype": "float32", "shape": ["n"], "init": {"uniform": [-1, 1]}}
    tensors = {"x": {"role": "input", **spec}, "w": {"role": "parameter", **spec}}
    nodes = [op("a", "Add", ["x", "w"], "t1"), op("b", "Exp", ["t1"], "t2"), op("c", "Neg", ["t2"], "t3")]
    nodes += [op("d", "Sin", ["t3"], "t4"), op("e", "Add", ["t4", "t1"], "t5"), op("f", "Mul", ["t5", "w"], "y")]
    return write(relu(dims={"n": {"default": 1024}}, tensors=tensors, nodes=nodes))


@pytest.mark.parametrize("limit", [16384, 24576, 32767])
@pytest.mark.parametrize("command", [["execute", "--device", "cpu"], ["plan-memory"], ["explain"]])
def test_memory_none_says_what_it_needs_itself(kgrun: Any, chain: Any, command: list[str], limit: int) -> None:
    done = kgrun(command[0], chain, *command[1:], "--memory", "none", "--memory-limit", str(limit), "--json")
    assert done.code == 4
    error = done.json()["error"]
    assert "own for every tensor the graph needs 32,768 bytes" in error["message"]
    assert error["details"]["smallest_feasible_limit_bytes"] == 32_768
    assert "--memory planned" in error["help"]
    fits = kgrun(command[0], chain, *command[1:], "--memory", "none", "--memory-limit", "32768")
    assert fits.code == 0


def test_red_zones_are_part_of_what_static_memory_takes(kgrun: Any, chain: Any) -> None:
    done = kgrun("execute", chain, "--device", "cpu", "--check", "redzone", "--memory-limit", "12288", "--json")
    message = done.json()["error"]["message"]
    total, parts = re.search(r"takes ([\d,]+) bytes \((.*?)\)", message).groups()  # type: ignore[union-attr]
    numbers = [int(text.replace(",", "")) for text in re.findall(r"\d[\d,]*\d", parts)]
    assert int(total.replace(",", "")) == sum(numbers)


@pytest.mark.parametrize(
    ("words", "keeps"),
    [
        (["--check", "init"], "--check"),
        (["--memory", "pool"], "--memory pool"),
        (["--allow-skip"], "--allow-skip"),
        (["--sweep", "n=8,1024"], "memory shared by graphs or sizes"),
    ],
)
def test_what_keeps_tensors_on_the_device_is_told(kgrun: Any, chain: Any, words: Any, keeps: str) -> None:
    run = ["execute", chain, "--device", "cpu", "--json"]
    assert kgrun(*run, "--memory-limit", "12288").code == 0  # by offload
    done = kgrun(*run, "--memory-limit", "12288", *words)
    assert done.code == 4
    assert f"{keeps} keeps all tensors on the device" in done.json()["error"]["help"]
    for mode in ("manual", "seeds"):
        done = kgrun(*run, "--offload", mode, *words)
        assert (done.code, done.json()["error"]["code"]) == (2, "KG240")
        assert keeps in done.json()["error"]["message"]


@pytest.mark.parametrize("command", ["plan-memory", "explain"])
@pytest.mark.parametrize("memory", ["pool", "none"])
def test_offload_asked_for_where_nothing_moves_is_refused(kgrun: Any, chain: Any, command: str, memory: str) -> None:
    done = kgrun(command, chain, "--offload", "manual", "--memory", memory, "--json")
    assert (done.code, done.json()["error"]["code"]) == (2, "KG240")


def test_node_by_node_the_peak_is_what_was_held_at_once(kgrun: Any, chain: Any) -> None:
    """Outputs take their bytes at the end, when the most dynamic bytes are long free."""
    done = kgrun("execute", chain, "--device", "cpu", "--memory", "single", "--memory-limit", "20480", "--json")
    assert done.code == 0
    memory = done.json()["memory"]
    assert memory["peak_bytes"] == memory["measured_peak_bytes"] == 20_480
    assert kgrun("execute", chain, "--device", "cpu", "--memory", "single", "--memory-limit", "20479").code == 4


def test_the_region_of_what_waits_on_the_host_is_the_dynamic_one(kgrun: Any, chain: Any) -> None:
    text = kgrun("plan-memory", chain, "--memory-limit", "12288").out
    rows = [line.split() for line in text.splitlines()]
    regions = {row[0]: row[1] for row in rows if len(row) == 5 and row[2:4] == ["4", "KiB"]}
    assert regions == {"input": "dynamic", "parameter": "static", "output": "dynamic", "intermediate": "dynamic"}


@pytest.mark.parametrize("marked", [[], ["t1"], ["w"], ["x", "t1", "w"]])
@pytest.mark.parametrize("mode", ["auto", "manual", "seeds", "off"])
def test_S97_the_smallest_limit_of_an_error_fits_in_the_mode_that_names_it(
    kgrun: Any,
    chain: Any,
    marked: list[str],
    mode: str,
) -> None:
    graph = json.loads(chain.read_text())
    for name in marked:
        graph["tensors"].setdefault(name, {})["offload"] = "always"
    chain.write_text(json.dumps(graph))
    words = ["execute", chain, "--device", "cpu", "--offload", mode, "--json", "--memory-limit"]
    error = kgrun(*words, "1").json()["error"]
    assert error["exit"] == 4
    least = error["details"]["smallest_feasible_limit_bytes"]
    if mode == "seeds":
        assert "with --offload auto" in error["help"]
        words[words.index(mode)] = "auto"
    done = kgrun(*words, str(least))
    assert done.code == 0, done.out
    assert done.json()["memory"]["measured_peak_bytes"] <= least


def test_streams_that_do_not_fit_side_by_side_leave_the_graph_as_it_is(kgrun: Any, write: Any) -> None:
    """Two branches of 2 tensors each: in turn one branch's bytes serve the other, side by side they cannot."""
    spec = {"role": "input", "dtype": "float32", "shape": [1024], "init": {"uniform": [-1, 1]}}
    nodes = [op(f"{b}{i}", "Sin", [f"{b}t{i}" if i else "x"], f"{b}t{i + 1}") for b in "pq" for i in range(3)]
    nodes += [op(f"{b}r", "ReduceSum", [f"{b}t3"], f"{b}s") for b in "pq"] + [op("y", "Add", ["ps", "qs"], "y")]
    file = write(relu(tensors={"x": spec}, nodes=nodes))
    words = ["execute", file, "--device", "cpu", "--json"]
    plain = kgrun(*words).json()
    limit = str(plain["memory"]["peak_bytes"])
    done = kgrun(*words, "--streams", "auto", "--memory-limit", limit)
    assert done.code == 0, done.out
    assert done.json()["outputs"] == plain["outputs"]
    assert done.json()["streams"] is None
