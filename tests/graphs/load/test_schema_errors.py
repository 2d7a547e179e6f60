"""Validation errors: clean paths, places, plain words, and one message for one mistake."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.load import parse_graph

NODE = {"name": "a", "kernel": "k", "grid": [1], "block": [32]}


def faults(**top: Any) -> list[GraphError]:
    text = json.dumps({"kgrun": 1, **top}, indent=1).encode()
    with pytest.raises(GraphError) as caught:
        parse_graph(text, name="g.json", format="json")
    assert caught.value.exit == 3
    found = [caught.value, *caught.value.others]  # type: ignore[list-item]
    assert all(isinstance(error, GraphError) and error.where and error.where.line for error in found)
    return found  # type: ignore[return-value]


def lines(**top: Any) -> list[str]:
    return [f"{e.code} {e.where.path} {e.message}" for e in faults(**top) if e.where]


def node(**keys: Any) -> list[dict[str, Any]]:
    return [{**NODE, **keys}]


def test_an_unknown_key_is_placed_at_the_key_and_guessed() -> None:
    [error] = faults(nodes=node(inptus=[]))
    assert error.code == "KG311"
    assert error.message == "unknown key 'inptus'"
    assert error.help == "did you mean 'inputs'?"
    assert str(error.where) == "g.json: nodes[0].inptus (line 13, column 4)"


def test_guesses_come_from_the_record_in_question() -> None:
    [op] = faults(nodes=[{"name": "a", "op": "Relu", "grid": [1]}])
    assert op.help is not None
    assert "attributes" in op.help
    assert "cooperative" not in op.help
    [tensor] = faults(graphs={"g": {"tensors": {"x": {"dtyp": "float32"}}}})
    assert tensor.help == "did you mean 'dtype'?"
    [dim] = faults(dims={"n": {"defualt": 1}})
    assert (dim.help, dim.where.path if dim.where else None) == ("did you mean 'default'?", ("dims", "n", "defualt"))


@pytest.mark.parametrize(
    ("top", "wanted"),
    [
        ({"nodes": node(inputs=5)}, "KG313 ('nodes', 0, 'inputs') expected a list, got 5"),
        (
            {"nodes": node(inputs=[["a", [1]]])},
            "KG313 ('nodes', 0, 'inputs', 0, 1, 0) expected a string or a list, got 1",
        ),
        ({"nodes": node(grid=[1.5])}, "KG313 ('nodes', 0, 'grid', 0) expected an integer or an expression, got 1.5"),
        ({"nodes": node(grid=["16"], block=["n +"])}, "KG320 ('nodes', 0, 'block', 0) malformed expression 'n +'"),
        ({"nodes": node(grid=[])}, "KG314 ('nodes', 0, 'grid') must have at least 1 item, has 0"),
        ({"nodes": node(grid=[1, 2, 3, 4])}, "KG314 ('nodes', 0, 'grid') must have at most 3 items, has 4"),
        ({"tensors": {"x": {"shape": [1] * 33}}}, "KG314 ('tensors', 'x', 'shape') must have at most 32 items, has 33"),
        ({"nodes": node(stream=-1)}, "KG314 ('nodes', 0, 'stream') must be at least 0, got -1"),
        ({"nodes": node(args=[3])}, "KG313 ('nodes', 0, 'args', 0) expected a string or a mapping, got 3"),
        ({"nodes": node(shared=True)}, "KG313 ('nodes', 0, 'shared') expected an integer or an expression, got true"),
        ({"nodes": [3]}, "KG313 ('nodes', 0) expected a mapping, got 3"),
        ({"nodes": [{"name": "x"}]}, "KG315 ('nodes', 0) a node has either `kernel` or `op`"),
        ({"dims": {"n": -1}}, "KG314 ('dims', 'n') must be at least 0, got -1"),
        ({"dims": {"n": "3"}}, "KG313 ('dims', 'n') expected an integer or a mapping, got '3'"),
        ({"dims": {"n": {"min": 3, "max": 2}}}, "KG315 ('dims', 'n') max 2 is less than min 3"),
        ({"tensors": {"x": None}}, "KG313 ('tensors', 'x') expected a mapping, got null"),
        ({"tensors": {"": {}}}, "KG314 ('tensors', '') must not be empty"),
        ({"tensors": []}, "KG313 ('tensors',) expected a mapping, got a list"),
        (
            {"tensors": {"x": {"init": {"uniform": ["a", 1]}}}},
            "KG313 ('tensors', 'x', 'init', 'uniform', 0) expected a number, got 'a'",
        ),
        (
            {"tensors": {"x": {"init": {"uniform": [1]}}}},
            "KG314 ('tensors', 'x', 'init', 'uniform') must have 2 items, has 1",
        ),
        (
            {"tensors": {"x": {"init": {"fill": "nana"}}}},
            "KG314 ('tensors', 'x', 'init', 'fill') 'nana' is not one of 'nan', 'inf' or '-inf'",
        ),
        ({"tensors": {"x": {"pin": 1}}}, "KG313 ('tensors', 'x', 'pin') expected true or false, got 1"),
        ({"kgrun": 2}, "KG316 ('kgrun',) format version 2 is not known"),
        ({"kgrun": "1"}, "KG316 ('kgrun',) format version '1' is not known"),
        ({"groups": {"g": [-1]}}, "KG314 ('groups', 'g', 0) must be at least 0, got -1"),
        ({"queues": {"q": {}}}, "KG312 ('queues', 'q') missing key 'items'"),
    ],
)
def test_one_mistake_one_message(top: dict[str, Any], wanted: str) -> None:
    assert lines(**top) == [wanted]


def test_wrong_choices_are_guessed() -> None:
    role, dtype = faults(tensors={"x": {"role": "inptu", "dtype": "flaot32"}})
    assert role.help == "did you mean 'input'?"
    assert dtype.help == "did you mean 'float32'?"
    [kind] = faults(nodes=[{"name": "x", "krenel": "k"}])
    assert kind.help == "'krenel': did you mean 'kernel'?"
    [init] = faults(tensors={"x": {"init": {"unifrom": [0, 1]}}})
    assert init.help == "'unifrom': did you mean 'uniform'?"


def test_a_misspelt_required_key_is_said_once() -> None:
    [error] = faults(kernels={"k": {"source": "k.cu", "entri": "k"}})
    assert (error.code, error.help) == ("KG311", "did you mean 'entry'?")
    assert [e.code for e in faults(kernels={"k": {"source": "k.cu", "x": "k"}})] == ["KG312", "KG311"]


def test_all_faults_are_reported_in_the_files_order() -> None:
    found = faults(outputs=[1], nodes=node(inputs=3), dims={"n": -1}, zzz=1)
    assert [e.where.path[0] for e in found if e.where] == ["outputs", "nodes", "dims", "zzz"]


def test_many_faults_are_counted_but_not_all_listed() -> None:
    found = faults(nodes=[{**NODE, "x": 1}] * 300)
    assert len(found) == 100
    assert found[0].details["faults"] == 300


def test_a_tensor_may_be_called_as_a_key_or_a_tag() -> None:
    tensors = {name: {"dtyep": "int8"} for name in ("init", "kernel", "uniform", "data", "tensors")}
    found = faults(tensors=tensors)
    assert [e.where.path for e in found if e.where] == [("tensors", name, "dtyep") for name in tensors]
    assert {e.help for e in found} == {"did you mean 'dtype'?"}


def test_long_values_are_shortened() -> None:
    [error] = faults(tensors={"x": {"dtype": "f" * 10_000}})
    assert len(error.message) < 400


def test_messages_name_nothing_of_python() -> None:
    found = faults(
        nodes=node(workspace=[{"nbytse": 1}], collective={"root": "1+"}, args=[{"int": 3}], clear=[None]),
        tensors={"x": {"value": {}, "cache": 3, "from_graph": {"graph": "g"}}},
    )
    for error in found:
        text = error.to_text()
        assert not any(
            word in text for word in ("constrained", "function-after", "Value error", "dict", "None", "Spec")
        )
