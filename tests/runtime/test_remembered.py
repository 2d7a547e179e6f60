"""Files that were checked before: read, not checked; whatever else changes is seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.load import graph as loading
from kgrun.graphs.plain import Plain
from kgrun.runtime import remembered
from kgrun.runtime.compile.cache import default_cache
from kgrun.runtime.remembered import load_remembered

GRAPH = """kgrun: 1
tensors:
  x: {role: input, dtype: float32, shape: [4], data: x.npy}
nodes:
  - {name: a, op: Relu, inputs: [x], outputs: [y]}
outputs: [y]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KGRUN_CACHE_DIR", str(tmp_path / "cache"))
    made = tmp_path / "g.yaml"
    made.write_text(GRAPH)
    return made


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were checked."""
    seen: list[str] = []
    validate = loading.KernelGraph.model_validate

    def counted(value: Any) -> Any:
        seen.append("checked")
        return validate(value)

    monkeypatch.setattr(loading.KernelGraph, "model_validate", counted)
    return seen


def test_the_same_bytes_are_checked_once(file: Path, checks: list[str]) -> None:
    first = load_remembered(str(file))
    second = load_remembered(str(file))
    assert checks == ["checked"]
    assert not isinstance(first, Plain)
    assert isinstance(second, Plain)
    assert second.nodes[0].name == "a"  # type: ignore[unreachable]
    assert (second.file, second.folder) == (str(file), file.parent)


def test_other_bytes_another_schema_or_kgrun_are_checked(
    file: Path, checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_remembered(str(file))
    file.write_text(GRAPH + "# more\n")
    load_remembered(str(file))
    monkeypatch.setattr(remembered, "__version__", "another")
    load_remembered(str(file))
    assert checks == ["checked"] * 3


def test_a_file_of_the_same_bytes_elsewhere_keeps_its_own_name_and_folder(file: Path, checks: list[str]) -> None:
    load_remembered(str(file))
    (file.parent / "deep").mkdir()
    other = file.parent / "deep" / "h.yaml"
    other.write_text(GRAPH)
    found = load_remembered(str(other))
    assert checks == ["checked"]
    assert (found.file, found.folder) == (str(other), other.parent)


def test_places_are_found_when_they_are_asked_for(file: Path) -> None:
    load_remembered(str(file))
    place = load_remembered(str(file)).place("nodes", 0, "op")
    assert (place.line, place.column) == (5, 19)


def test_a_link_that_leads_out_of_the_folder_is_found_each_time(file: Path, tmp_path: Path) -> None:
    load_remembered(str(file))
    outside = tmp_path.parent / "outside.npy"
    (file.parent / "x.npy").symlink_to(outside)
    with pytest.raises(GraphError) as refused:
        load_remembered(str(file))
    assert refused.value.code == "KG371"
    assert refused.value.where is not None
    assert refused.value.where.line == 3
    assert load_remembered(str(file), allow_external_data=True).allows_external_data


def test_faults_are_found_each_time_and_nothing_is_kept_of_them(file: Path, checks: list[str]) -> None:
    file.write_text(GRAPH.replace("dtype: float32", "dtype: float33"))
    for _ in range(2):
        with pytest.raises(GraphError):
            load_remembered(str(file))
    assert checks == ["checked"] * 2
    assert default_cache().size_bytes() == 0


def test_a_damaged_entry_is_made_again(file: Path, checks: list[str], tmp_path: Path) -> None:
    load_remembered(str(file))
    (entry,) = (tmp_path / "cache").glob("??/*")
    key = entry.parent.name + entry.stem
    default_cache().put(key, b"no graph at all")
    load_remembered(str(file))
    load_remembered(str(file))
    assert checks == ["checked"] * 2


def test_graphs_with_bodies_and_without_a_cache_are_checked(
    file: Path, checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(GRAPH + "graphs: {body: {outputs: []}}\n")
    load_remembered(str(file))
    assert not isinstance(load_remembered(str(file)), Plain)
    file.write_text(GRAPH)
    monkeypatch.setenv("KGRUN_CACHE_DIR", "/dev/null")
    assert not any(isinstance(load_remembered(str(file)), Plain) for _ in range(2))
    assert len(checks) == 4


def test_a_command_on_a_file_that_was_checked_needs_neither_schema_nor_yaml(file: Path) -> None:
    words = [sys.executable, "-X", "importtime", "-m", "kgrun.cli", "plan-memory", str(file)]
    imported = []
    for _ in range(2):
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        imported.append({line.rpartition("|")[2].strip() for line in done.stderr.splitlines()})
    heavy = {"kgrun.graphs.schema.graph", "kgrun.graphs.load.yaml_text", "yaml"}
    assert imported[0] >= heavy
    assert not imported[1] & heavy
