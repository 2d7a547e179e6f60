"""The example files: each validates, says what it shows, names files that are there, and its expected outputs hold."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

from kgrun.graphs.schema.graph import KernelGraph, json_schema

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DATA = EXAMPLES / "data"
GRAPHS = sorted(EXAMPLES.glob("*.yaml"))


def script(name: str) -> ModuleType:
    """The module examples/make/`name`.py."""
    spec = importlib.util.spec_from_file_location(f"make_{name}", EXAMPLES / "make" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.stem)
def test_graph_is_valid_and_introduces_itself(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    modeline, shows = text.splitlines()[:2]
    assert modeline == "# yaml-language-server: $schema=./kgrun.schema.json"
    assert shows.startswith("# Shows ")
    assert shows.endswith(".")
    assert max(map(len, text.splitlines())) <= 120
    graph = KernelGraph.model_validate(yaml.safe_load(text))
    assert graph.name == path.stem
    named = [tensor.data.partition("#")[0] for tensor in graph.tensors.values() if tensor.data]
    assert all((EXAMPLES / file).is_file() for file in named + [kernel.source for kernel in graph.kernels.values()])
    # `kgrun explain GRAPH NAME` finds nodes and tensors by name alone.
    assert not {node.name for node in graph.nodes} & {output for node in graph.nodes for output in node.outputs}


def test_readme_has_a_command_for_every_graph_and_names_only_files_that_exist() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    (?:kgrun execute|python) (.+)$", text, re.MULTILINE)
    assert {path.name for path in GRAPHS} == {Path(c.split()[0]).name for c in commands if ".yaml" in c}
    for file in re.findall(r"examples/[\w/.]+", "\n".join(commands)):
        assert (EXAMPLES.parent / file).is_file(), file


def test_data_files_are_small() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) <= 3_000_000


def test_committed_schema_is_the_present_one() -> None:
    assert json.loads((EXAMPLES / "kgrun.schema.json").read_text(encoding="utf-8")) == json_schema()


def test_expected_outputs_of_saxpy() -> None:
    given = np.load(DATA / "saxpy.npz")
    exact = 2.0 * given["x"].astype(np.float64) + given["y"]
    np.testing.assert_array_equal(np.load(DATA / "saxpy.expected.npz")["z"], exact.astype(np.float32))


def test_expected_outputs_of_digits() -> None:
    weights = load_file(DATA / "digits.safetensors")
    for name, count in (("digits", 450), ("digits16", 16)):
        given, expected = np.load(DATA / f"{name}.npz"), np.load(DATA / f"{name}.expected.npz")
        for key, array in script("train_digits").reference(weights, given["images"], given["labels"]).items():
            np.testing.assert_allclose(array, expected[key], rtol=1e-6, atol=1e-6)
        assert len(given["labels"]) == count
        assert expected["accuracy"] >= 0.97


def test_expected_outputs_of_embedding() -> None:
    given, expected = np.load(DATA / "clicks.npz"), np.load(DATA / "embedding.expected.npz")
    for key, array in script("embedding").reference(given["products"], given["steps"]).items():
        np.testing.assert_array_equal(array, expected[key])
    assert len(expected["seen_new"]) == 32


def test_expected_outputs_of_edges() -> None:
    expected = np.load(DATA / "edges.expected.npz")
    reference = script("edges").reference(np.load(DATA / "astronaut.npy"))
    np.testing.assert_allclose(reference["magnitude"], expected["magnitude"], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(reference["edges"], expected["edges"])
    assert 0.05 < np.mean(expected["edges"] == 255) < 0.5


def test_the_picture_of_the_edges_is_a_png(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "edges.png"
    monkeypatch.setattr("sys.argv", ["show_edges.py", str(DATA / "edges.expected.npz"), str(picture)])
    script("show_edges").main()
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (800, 301)


def test_expected_outputs_of_encoder() -> None:
    given = np.load(DATA / "encoder.npz")
    weights = {name: w.astype(np.float64) for name, w in load_file(DATA / "encoder.safetensors").items()}
    reference = script("encoder").encoded(given["tokens"].astype(np.float64), given["mask"], weights)
    np.testing.assert_allclose(np.load(DATA / "encoder.expected.npz")["encoded"], reference, rtol=1e-6, atol=1e-6)
