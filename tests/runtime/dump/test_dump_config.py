"""Dump configurations: what is right, and every way of being wrong (S136, S137)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kgrun.graphs.errors import GraphError, UsageError
from kgrun.runtime.dump.config import read_config
from kgrun.runtime.dump.iterations import parse_iterations

CONFIG: dict[str, Any] = {
    "common_dump_settings": {
        "dump_mode": 1,
        "path": "/tmp/dumps",
        "net_name": "net-1",
        "iteration": "0|3-5",
        "input_output": 0,
        "kernels": ["a", "b"],
        "support_device": [0, 1],
        "op_debug_mode": 0,
    },
    "e2e_dump_settings": {"enable": True, "trans_flag": False},
}


def written(folder: Path, change: dict[str, Any] | None = None, drop: str | None = None) -> str:
    made = copy.deepcopy(CONFIG)
    for key, value in (change or {}).items():
        block, _, name = key.rpartition(".")
        (made[block] if block else made)[name] = value
    if drop is not None:
        block, _, name = drop.rpartition(".")
        del (made[block] if block else made)[name]
    path = folder / "dump.json"
    path.write_text(json.dumps(made, indent=1))
    return str(path)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("all", [0, 7, 10**9], []),
        ("3", [3], [2, 4]),
        ("0|2-4|9", [0, 2, 3, 4, 9], [1, 5, 8, 10]),
        ("5-5", [5], [4, 6]),
    ],
)
def test_S137_iterations_that_are_named(text: str, inside: list[int], outside: list[int]) -> None:
    found = parse_iterations(text)
    assert all(n in found for n in inside)
    assert not any(n in found for n in outside)


@pytest.mark.parametrize("text", ["", "|", "1|", "a", "1-", "-1", "5-3", "1,2", "all|3", " 1", "1-2-3", "²"])
def test_S137_garbage_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_iterations(text)
    assert caught.value.code == "KG253"


def test_S136_a_whole_configuration(tmp_path: Path) -> None:
    config = read_config(written(tmp_path))
    assert (config.names, str(config.folder)) == (("a", "b"), "/tmp/dumps/net-1")
    assert (config.inputs, config.outputs, config.enabled, config.devices) == (True, True, True, {0, 1})
    assert read_config(written(tmp_path, {"common_dump_settings.dump_mode": 0})).everything
    only = read_config(written(tmp_path, {"common_dump_settings.input_output": 1}))
    assert (only.inputs, only.outputs) == (True, False)


def test_S136_without_the_second_block_it_is_on(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, drop="e2e_dump_settings")).enabled


def test_B25_enable_false_is_honoured_although_the_common_block_is_there(tmp_path: Path) -> None:
    assert not read_config(written(tmp_path, {"e2e_dump_settings.enable": False})).enabled


@pytest.mark.parametrize(
    "key",
    [
        "common_dump_settings",
        *(f"common_dump_settings.{k}" for k in CONFIG["common_dump_settings"]),
        *(f"e2e_dump_settings.{k}" for k in CONFIG["e2e_dump_settings"]),
    ],
)
def test_S136_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    with pytest.raises(GraphError, match=rf"{key.rpartition('.')[2]} is missing") as caught:
        read_config(written(tmp_path, drop=key))
    assert (caught.value.code, caught.value.exit) == ("KG392", 3)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dump_mode", 2),
        ("dump_mode", "0"),
        ("dump_mode", True),
        ("path", "dumps"),
        ("path", "/tmp/a b"),
        ("net_name", "a/b"),
        ("net_name", ""),
        ("iteration", ""),
        ("iteration", "1,2"),
        ("iteration", 3),
        ("input_output", 3),
        ("input_output", -1),
        ("kernels", "a"),
        ("kernels", []),
        ("kernels", [1]),
        ("support_device", [-1]),
        ("support_device", 0),
        ("op_debug_mode", 4),
    ],
)
def test_S136_a_wrong_value_is_refused_where_it_stands(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(GraphError) as caught:
        read_config(written(tmp_path, {f"common_dump_settings.{key}": value}))
    place = caught.value.where
    assert place is not None
    assert (caught.value.code, place.path[:2]) == ("KG392", ("common_dump_settings", key))
    assert place.line is not None
    assert caught.value.others == ()


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    change = {"common_dump_settings.dump_mode": 7, "e2e_dump_settings.enable": 1, "common_dump_setting": 1}
    with pytest.raises(GraphError) as caught:
        read_config(written(tmp_path, change, drop="common_dump_settings.path"))
    assert len([caught.value, *caught.value.others]) == 4
    helps = [error.help or "" for error in (caught.value, *caught.value.others)]
    assert any(text.startswith("did you mean 'common_dump_settings'") for text in helps)


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("d.json", b"", "KG303"),
        ("d.json", b"\xff", "KG304"),
        ("d.txt", b"{}", "KG302"),
        ("d.json", b"PK\x03\x04", "KG302"),
    ],
)
def test_files_that_are_no_configuration_are_told_what_was_expected(
    tmp_path: Path, name: str, data: bytes, code: str
) -> None:
    """And not that a graph was."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(GraphError) as caught:
        read_config(str(tmp_path / name))
    said = f"{caught.value.message} {caught.value.help}"
    assert (caught.value.code, "a dump configuration (.json)" in said, "graph" in said) == (code, True, False)
