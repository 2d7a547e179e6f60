"""Whatever the bytes, loading ends in a graph or in an error with a documented exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgrun.graphs.errors import KgrunError
from kgrun.graphs.load import load_graph, parse_graph
from kgrun.graphs.schema.graph import GraphBody, KernelGraph
from kgrun.graphs.schema.nodes import KernelNode, OpNode
from kgrun.graphs.schema.tensors import TensorSpec
from tests.fuzz.mutate import VALUES, mutations

ROOT = Path(__file__).parents[2]
SEEDS = sorted((Path(__file__).parent / "seeds").iterdir())
SETTINGS = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(VALUES)
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=8), v, max_size=4), max_leaves=12
)


def record(model: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings with some of the model's keys and any values."""
    names = [field.alias or name for name, field in model.model_fields.items()]
    return st.dictionaries(st.sampled_from(names), values, max_size=6)


names = st.sampled_from(["x", "y", "z", "a", ""])
nodes = st.lists(record(KernelNode) | record(OpNode) | values, max_size=3)
body = st.fixed_dictionaries(
    {}, optional={"tensors": st.dictionaries(names, record(TensorSpec) | values), "nodes": nodes}
)
documents = st.builds(lambda base, more: {"kgrun": 1, **base, **more}, record(KernelGraph), body) | st.builds(
    lambda b, inner: {"kgrun": 1, **b, "graphs": {"g": inner}}, body, body | record(GraphBody)
)


def loads(data: bytes, name: str, form: Any) -> None:
    """Load `data`; anything but a graph or a documented error fails the test."""
    try:
        result: KernelGraph | KgrunError = parse_graph(data, name=name, format=form)
    except KgrunError as error:
        result = error
    assert isinstance(result, KernelGraph) or (result.exit in (2, 3) and result.to_text())


@pytest.mark.parametrize("seed", SEEDS, ids=lambda p: p.name)
def test_the_seeds_are_graphs(seed: Path) -> None:
    assert load_graph(seed).nodes


def test_mutants_are_many_different_and_reproducible() -> None:
    text = SEEDS[0].read_text()
    first = list(mutations(text, 400, seed=3))
    assert first == list(mutations(text, 400, seed=3))
    assert len(set(first)) > 300
    assert first != list(mutations(text, 400, seed=4))


def test_two_thousand_mutants_end_in_documented_ways() -> None:
    count = 700
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.run_cases", str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["failures"] == []
    outcomes = result["outcomes"]
    assert sum(outcomes.values()) == count * len(SEEDS) >= 2000
    # The mutants reach every stage: they are neither all valid nor all nonsense.
    assert outcomes["graph"] > 100
    assert len(outcomes) > 12


@SETTINGS
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes(data: bytes) -> None:
    for form in ("json", "yaml", None):
        loads(data, "g", form)


@SETTINGS
@given(documents)
def test_any_values_under_the_right_keys_as_json(document: dict[str, Any]) -> None:
    loads(json.dumps(document).encode(), "g.json", "json")


@SETTINGS
@given(documents)
def test_any_values_under_the_right_keys_as_yaml(document: dict[str, Any]) -> None:
    loads(yaml.safe_dump(document).encode("utf-8", "surrogatepass"), "g.yaml", "yaml")


@SETTINGS
@given(values.filter(lambda v: v == v))
def test_json_values_are_read_as_the_standard_library_reads_them(value: Any) -> None:
    from kgrun.graphs.errors import GraphError
    from kgrun.graphs.load.json_text import read_json

    text = json.dumps({"v": value})
    try:
        found = read_json(text, "g.json").value
    except GraphError as error:
        found = error.code
    # NaN and infinities, half characters.
    assert found in ("KG308", "KG305") or found == json.loads(text)
