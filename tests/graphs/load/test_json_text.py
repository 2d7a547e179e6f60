"""JSON text: what is refused, with which places, and what is accepted."""

from __future__ import annotations

import json

import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.load import json_text, parse_graph
from kgrun.graphs.load.json_text import read_json

EMPTY = '{"kgrun": 1}'


def fault(text: str) -> GraphError:
    with pytest.raises(GraphError) as caught:
        read_json(text, "g.json")
    assert caught.value.exit == 3
    return caught.value


def test_json_03_duplicate_key_names_the_key_and_both_places() -> None:
    error = fault('{"a": {"kernels": [1],\n  "b": 2,\n    "kernels": [2]}}')
    assert error.code == "KG306"
    assert "'kernels'" in error.message
    assert "line 1, column 8" in error.message
    assert "line 3, column 5" in error.message
    assert str(error.where) == "g.json: a.kernels (line 3, column 5)"


def test_json_03_duplicate_keys_are_found_in_any_depth_and_spelling() -> None:
    assert fault('{"a": 1, "a": 2}').details == {"key": "a", "first": [1, 2], "second": [1, 10]}
    assert str(fault('{"x": [0, [{"q": {"b": 1, "\\u0062": 2}}]]}').where) == (
        "g.json: x[1][0].q.b (line 1, column 27)"
    )
    assert fault('[{"a": {}, "a": {"b": 1, "b": 2}}]').where.path == (0, "a")  # type: ignore[union-attr]


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" * 5000, "0." + "1" * 500])
def test_json_01_numbers_that_no_float_holds_are_refused_with_their_place(literal: str) -> None:
    error = fault(f'{{"tensors": {{"x": {{"value":\n [1, [2, {literal}]]}}}}}}')
    assert error.code == "KG308"
    assert str(error.where) == "g.json: tensors.x.value[1][1] (line 2, column 10)"
    assert error.help is not None
    assert '"nan"' in error.help
    assert len(error.message) < 80


def test_json_01_nan_and_inf_are_allowed_as_strings_in_value_and_fill() -> None:
    text = {
        "kgrun": 1,
        "tensors": {
            "v": {"role": "constant", "dtype": "float32", "value": [1, "nan", "-inf"]},
            "f": {"role": "input", "dtype": "float32", "shape": [2], "init": {"fill": "inf"}},
        },
    }
    graph = parse_graph(json.dumps(text).encode(), name="g.json", format="json")
    assert graph.tensors["v"].value == [1, "nan", "-inf"]


def test_finite_extremes_are_read_exactly() -> None:
    value = read_json("[1e308, -0.0, 5e-324, 18446744073709551615, 1e-400]", "g.json").value
    assert value == [1e308, 0.0, 5e-324, 18446744073709551615, 0.0]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 101 + "]" * 101])
def test_yaml_06_deep_json_is_refused_naming_the_limit(text: str) -> None:
    error = fault(text)
    assert error.code == "KG307"
    assert "100 levels" in error.message
    assert error.where is not None
    assert error.where.line == 1


def test_the_deepest_allowed_document_is_read() -> None:
    deepest = "[" * 100 + "]" * 100
    assert json.dumps(read_json(deepest, "g.json").value) == deepest


def test_brackets_inside_strings_do_not_nest() -> None:
    text = json.dumps({"source": '[[{"' * 500})
    assert read_json(text, "g.json").value == {"source": '[[{"' * 500}


def test_too_many_values_are_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MAX_VALUES", 1000)
    assert fault(f"[{'0,' * 1000}0]").code == "KG307"
    assert read_json(f"[{'0,' * 900}0]", "g.json").value == [0] * 901


@pytest.mark.parametrize(
    ("text", "place", "help"),
    [
        ('{"a": 1,}', (1, 9), "comma"),
        ('{"a": 1}}', (1, 9), "ends before"),
        ("{'a': 1}", (1, 2), "double quotes"),
        ('{"a": 1\n // note\n}', (2, 2), "comments"),
        ('{"a": "x\ny"}', (1, 9), None),
        ('{"a": tru}', (1, 7), None),
        ('{"a": [1, 2', (1, 12), None),
        ('{"a": 01}', (1, 8), None),
    ],
)
def test_syntax_errors_have_places(text: str, place: tuple[int, int], help: str | None) -> None:
    error = fault(text)
    assert error.code == "KG305"
    assert error.where is not None
    assert (error.where.line, error.where.column) == place
    assert help is None or help in (error.help or "")


@pytest.mark.parametrize(
    "text", ['"\\ud800"', '"\\udc00"', '"\\ud800x"', '"\\udc00\\ud800"', '"a\\ud83d\\ud83d\\ude00"']
)
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    error = fault(f"[{text}]")
    assert error.code == "KG305"
    assert "surrogate" in error.message


def test_surrogate_pairs_and_escaped_backslashes_are_text() -> None:
    assert read_json('["\\ud83d\\ude00", "\\\\ud800", "é😀"]', "g.json").value == ["😀", "\\ud800", "é😀"]


def test_byte_order_mark_and_crlf_are_accepted() -> None:
    graph = parse_graph(b"\xef\xbb\xbf{\r\n" + b'"kgrun": 1}\r\n', name="g.json", format="json")
    assert graph.name == "graph"


def test_places_of_values_and_keys() -> None:
    document = read_json('{"a": [1,\n  {"b c": null}],\n "d": {}}', "g.json")
    assert document.locate((), False) == (1, 1)
    assert document.locate(("a", 1, "b c"), False) == (2, 11)
    assert document.locate(("a", 1, "b c"), True) == (2, 4)
    assert document.locate(("d", "missing"), False) == (3, 7)
    assert document.locate(("a", 7), True) == (1, 2)
