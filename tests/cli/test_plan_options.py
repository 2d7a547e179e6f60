"""Further options of `plan-memory`: chunks, padding, the plan cache, streams, listings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgrun.cli.app import invoke
from kgrun.graphs.errors import UsageError
from tests.support import graph, node, tensor

KIB = 1024


def written(tmp_path: Path, **top: Any) -> str:
    nodes = [
        node("a", ["x"], ["t"]),
        node("comm", ["t"], ["u"], collective={}),
        node("b", ["x"], ["v"]),
        node("join", ["v", "u"], ["y"]),
    ]
    tensors = {"x": tensor("input", [700])} | {name: tensor(None, [500]) for name in "tuv"}
    made = graph(nodes, tensors, ["y"], **top)
    path = tmp_path / "graph.json"
    path.write_text(made.model_dump_json(by_alias=True, exclude_none=True, exclude_defaults=False))
    return str(path)


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert invoke(["plan-memory", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_S88_streams_and_events_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, written(tmp_path), "--streams")
    assert [row["name"] for row in found["streams"]] == ["compute", "comm"]
    assert [(e["record_after"], e["wait_before"]) for e in found["events"]] == [("a", "comm"), ("comm", "join")]


def test_the_streams_table_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["plan-memory", written(tmp_path), "--streams"]) == 0
    text = capsys.readouterr().out
    assert "Streams" in text
    assert "record after" in text


def test_S66_S67_padding_and_guards_are_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    plain = document(capsys, path)["memory"]["dynamic_bytes"]
    common = document(capsys, path, "--padding", "common")["memory"]["dynamic_bytes"]
    guarded = document(capsys, path, "--comm-guard")["memory"]["dynamic_bytes"]
    assert plain < common
    assert plain < guarded


def test_S62_U6_a_plan_is_kept_and_taken_again_and_a_broken_entry_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, cache = written(tmp_path), tmp_path / "plans"
    words = (path, "--plan-cache", str(cache), "--plan-cache-min", "1")
    assert invoke(["plan-memory", *words]) == 0
    assert "no entry" in capsys.readouterr().out
    assert invoke(["plan-memory", *words]) == 0
    assert "verified" in capsys.readouterr().out
    (entry,) = cache.iterdir()
    entry.write_text('{"format": 1')
    assert invoke(["plan-memory", *words]) == 0
    assert "planned again" in capsys.readouterr().out
    assert document(capsys, *words)["memory"] | {"plan_ns": 0} == document(capsys, path)["memory"] | {"plan_ns": 0}


def test_S62_small_graphs_are_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document(capsys, written(tmp_path), "--plan-cache", str(tmp_path / "plans"))
    assert not (tmp_path / "plans").exists()


def test_S63_listings_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "listings"
    document(capsys, written(tmp_path), "--save-plan", str(folder))
    assert sorted(p.name for p in folder.iterdir()) == [
        "buffers.csv", "decisions.txt", "map.svg", "packing.csv", "steps.txt",
    ]  # fmt: skip
    assert (folder / "steps.txt").read_text().splitlines()[3] == "3 join (k) on compute after 1: reads v u; writes y"
    assert (folder / "buffers.csv").read_text().startswith("buffer,name,class,space,offset,nbytes,held,")


def test_a_folder_that_cannot_be_made_is_a_file_that_cannot_be_written(tmp_path: Path, kgrun: Any) -> None:
    (tmp_path / "taken").write_text("")
    result = kgrun("plan-memory", written(tmp_path), "--save-plan", tmp_path / "taken" / "listings", "--json")
    assert (result.code, result.json()["error"]["code"]) == (2, "KG258")


@pytest.mark.parametrize("size", ["0", "1", "700", "1MB"])
def test_a_chunk_is_a_multiple_of_the_alignment(tmp_path: Path, kgrun: Any, size: str) -> None:
    result = kgrun("plan-memory", written(tmp_path), "--max-chunk", size, "--json")
    assert (result.code, result.json()["error"]["code"]) == (2, "KG251")


@pytest.mark.parametrize("words", [("--max-chunk", "512"), ("--memory", "pool"), ("--comm-guard",), ("--dim", "n=1")])
def test_a_packing_problem_takes_no_options_of_graphs(tmp_path: Path, kgrun: Any, words: tuple[str, ...]) -> None:
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,3,4\n")
    result = kgrun("plan-memory", tmp_path / "p.csv", *words, "--json")
    assert (result.code, result.json()["error"]["code"]) == (2, "KG240")


def test_a_limit_on_the_command_line_beats_the_environments(
    tmp_path: Path, kgrun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path)
    monkeypatch.setenv("KGRUN_MEMORY_LIMIT", "1")
    assert kgrun("plan-memory", file, "--offload", "off").code == 4
    for option in ("--limit", "--memory-limit"):
        assert kgrun("plan-memory", file, "--offload", "off", option, "1GiB").code == 0


def test_a_chunk_bounds_every_buffer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, written(tmp_path), "--max-chunk", "1KiB", "--memory", "none")
    for row in found["tensors"]:
        if row["class"] in ("intermediate", "communication"):
            assert row["offset"] // KIB == (row["offset"] + row["nbytes"] - 1) // KIB


@pytest.mark.parametrize("command", ["plan-memory", "validate", "explain"])
def test_an_unknown_architecture_is_told_also_where_nothing_is_launched(tmp_path: Path, command: str) -> None:
    path = tmp_path / "neg.json"
    made = graph([node("a", ["x"], ["y"], op="Neg")], {"x": tensor("input", [4], "float32")}, ["y"])
    path.write_text(made.model_dump_json(by_alias=True, exclude_none=True))
    with pytest.raises(UsageError, match="unknown architecture 'sm_1'") as caught:
        invoke([command, str(path), "--arch", "sm_1", "--json"])
    assert caught.value.code == "KG221"


def test_a_negative_number_of_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'--plan-cache-min'") as caught:
        invoke(["plan-memory", written(tmp_path), "--plan-cache-min", "-1", "--json"])
    assert caught.value.code == "KG250"
