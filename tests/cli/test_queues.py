"""`--queue`: data and settings on the command line, what the report says of them, and how runs without data end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.cli.render.schema import report_schema
from kgrun.graphs.errors import UsageError
from kgrun.runtime.queues import QueueFeed
from kgrun.runtime.queues.settings import parse_queues
from tests.commands import Command

GRAPH = {
    "kgrun": 1,
    "tensors": {"x": {"dtype": "float32", "shape": [2]}},
    "queues": {"q": {"items": ["x"], "data": "x.npz"}},
    "nodes": [
        {"name": "next", "op": "GetNext", "queue": "q", "outputs": ["x"]},
        {"name": "neg", "op": "Neg", "inputs": ["x"], "outputs": ["y"]},
    ],
    "outputs": ["y"],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "fed.json"
    path.write_text(json.dumps(GRAPH))
    np.savez(tmp_path / "x.npz", x=np.arange(7, dtype=np.float32))
    return path


def test_the_graphs_own_data_are_gone_through_once(
    kgrun: Command, faults: Callable[[Any, Mapping[str, Any]], list[str]], file: Path
) -> None:
    done = kgrun("execute", file, "--device", "cpu", "--json")
    document = done.json()
    assert faults(document, {"$ref": "#/$defs/execute", "$defs": report_schema()["$defs"]}) == []
    assert (document["iterations"], document["outputs"][0]["value"]) == (3, [-4, -5])
    (queue,) = document["queues"]
    assert (queue["name"], queue["source"], queue["batches"], queue["left"]) == ("q", "x.npz", 3, 0)
    text = kgrun("execute", file, "--device", "cpu").out
    assert "queue        q: 3 batches of 8 bytes from x.npz, 0 left; runs waited" in text


def test_settings_beside_the_data_or_alone(kgrun: Command, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "a,b.npz"
    np.savez(other, x=np.arange(10, 15, dtype=np.float32))
    done = kgrun("execute", file, "--device", "cpu", "--queue", f"q={other},epochs=2,last=pad", "--json").json()
    assert (done["iterations"], done["outputs"][0]["value"]) == (6, [-14, -10])
    done = kgrun("execute", file, "--device", "cpu", "--queue", "q=,epochs=0", "--iterations", "5", "--json").json()
    assert (done["iterations"], done["outputs"][0]["value"]) == (5, [-2, -3])


@pytest.mark.parametrize(
    ("words", "code", "exit"),
    [
        (["--iterations", "4"], "KG395", 3),
        (["--queue", "q=none.npz"], "KG372", 3),
        (["--queue", "p=x.npz"], "KG275", 2),
        (["--queue", "q"], "KG274", 2),
        (["--queue", "q=x.npz", "--queue", "q=y.npz"], "KG276", 2),
        (["--queue", "q=,epochs=two"], "KG274", 2),
        (["--queue", "q=,epochs=2,lost=pad"], "KG274", 2),
        (["--queue", "q=,timeout=-1"], "KG253", 2),
        (["--input", "x=x.npy"], "KG271", 2),
    ],
)
def test_what_cannot_be_is_refused(kgrun: Command, file: Path, words: list[str], code: str, exit: int) -> None:
    done = kgrun("execute", file, "--device", "cpu", *words, "--json")
    assert (done.json()["error"]["code"], done.code) == (code, exit)


def test_plans_and_checks_need_no_data(kgrun: Command, file: Path) -> None:
    assert kgrun("validate", file).code == 0
    memory = kgrun("plan-memory", file, "--json").json()["memory"]
    assert {row["class"] for row in memory["classes"]} == {"input", "output"}


def test_B18_words_as_feeds() -> None:
    assert parse_queues(["a=x.npz", "b=d/e,shuffle=3,last=drop,timeout=2.5,capacity=4", "c=,epochs=0"]) == {
        "a": QueueFeed("x.npz"),
        "b": QueueFeed("d/e", shuffle=3, last="drop", timeout=2.5, capacity=4),
        "c": QueueFeed(None, epochs=0),
    }
    with pytest.raises(UsageError, match="queue 'a' is given twice") as caught:
        parse_queues(["a=x.npz", "a=y.npz"])
    assert caught.value.code == "KG276"


def test_a_graph_that_runs_node_by_node_has_no_queues(kgrun: Command, file: Path) -> None:
    done = kgrun("execute", file, "--device", "cpu", "--memory", "single", "--json").json()
    assert done["error"]["code"] == "KG356"
    assert "a data queue needs a planned run" in done["error"]["message"]


def test_a_bundle_has_the_first_batch_as_its_input(kgrun: Command, file: Path, tmp_path: Path) -> None:
    words = ("execute", file, "--device", "cpu", "--iterations", "1", "--queue", "q=,shuffle=2")
    first = kgrun(*words, "--repro", tmp_path / "bundle", "--repro-always", "--json").json()
    again = kgrun(
        "execute", tmp_path / "bundle" / "graph.json", "--inputs", tmp_path / "bundle" / "inputs.npz", "--json"
    )
    assert again.json()["outputs"] == first["outputs"]
    assert again.json()["queues"] == []


def test_a_file_of_another_type_is_named_with_its_item_before_anything_runs(kgrun: Command, file: Path) -> None:
    np.savez(file.parent / "wide.npz", x=np.arange(7.0))
    error = kgrun("execute", file, "--device", "cpu", "--queue", f"q={file.parent / 'wide.npz'}", "--json").json()[
        "error"
    ]
    assert (error["code"], error["exit"]) == ("KG375", 3)
    assert "wide.npz#x has dtype float64, expected float32" in error["message"]
    assert "queues.q" in error["where"]


def test_a_setting_that_there_is_not_is_told_those_that_there_are(kgrun: Command, file: Path) -> None:
    error = kgrun("execute", file, "--device", "cpu", "--queue", "q=x.npz,epoch=2", "--json").json()["error"]
    assert (error["code"], error["exit"]) == ("KG274", 2)
    assert error["help"] == "settings behind the data: shuffle, epochs, last, timeout, capacity"
