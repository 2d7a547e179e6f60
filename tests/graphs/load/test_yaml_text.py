"""YAML text: the core schema's scalars, and everything that a graph file has not."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kgrun.graphs.errors import GraphError
from kgrun.graphs.load import parse_graph, yaml_text
from kgrun.graphs.load.yaml_text import read_yaml

PARSERS = [yaml.SafeLoader] + ([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])
pytestmark = pytest.mark.parametrize("parser", PARSERS, ids=lambda p: p.__name__)


def value(text: str, parser: Any) -> Any:
    return read_yaml(text, "g.yaml", parser).value


def fault(text: str, parser: Any) -> GraphError:
    with pytest.raises(GraphError) as caught:
        read_yaml(text, "g.yaml", parser)
    assert caught.value.exit == 3
    return caught.value


def same(found: object, wanted: object) -> bool:
    return type(found) is type(wanted) and found == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1e-5", 1e-5),
        ("1e5", 1e5),
        ("1.0e+10", 1e10),
        ("-.5", -0.5),
        ("3.", 3.0),
        ("+12", 12),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("-0", 0),
        ("no", "no"),
        ("Yes", "Yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("12:30:45", "12:30:45"),
        ("2001-01-01", "2001-01-01"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("-0x1F", "-0x1F"),
        ("1e", "1e"),
        ("e5", "e5"),
        (".", "."),
        ("-", None),
        ("nan", "nan"),
        ("inf", "inf"),
        ("=", "="),
        ("true", True),
        ("FALSE", False),
        ("tRue", "tRue"),
        ("null", None),
        ("~", None),
        ("", None),
        ("'017'", "017"),
        ('"1e-5"', "1e-5"),
        ("'~'", "~"),
        ("|-\n  12", "12"),
        ("١٢", "١٢"),
    ],
)
def test_yaml_01_and_03_scalars_follow_the_core_schema(parser: Any, text: str, wanted: object) -> None:
    if text == "-":
        assert value("a: [~]\n", parser) == {"a": [None]}
        return
    assert same(value(f"a: {text}\n", parser)["a"], wanted)


def test_yaml_03_a_shape_of_017_has_seventeen_elements(parser: Any) -> None:
    text = b"kgrun: 1\nname: 12:30:45\ntensors: {x: {dtype: float32, shape: [017], doc: 2001-01-01}}\n"
    graph = parse_graph(text, name="g.yaml", format="yaml")
    assert graph.tensors["x"].shape == [17]
    assert graph.name == "12:30:45"
    assert graph.tensors["x"].doc == "2001-01-01"
    assert parser is not None


@pytest.mark.parametrize("text", [".nan", ".NaN", ".inf", "-.INF", "1e400", "9" * 500, "0x" + "f" * 500])
def test_json_01_numbers_that_json_would_refuse_are_refused(parser: Any, text: str) -> None:
    error = fault(f"a:\n- 1\n- b: {text}\n", parser)
    assert error.code == "KG308"
    assert str(error.where) == "g.yaml: a[1].b (line 3, column 6)"


def test_duplicate_key_names_both_places(parser: Any) -> None:
    error = fault("kgrun: 1\ntensors:\n  x: {}\n  y: {}\n  'x': {}\n", parser)
    assert error.code == "KG306"
    assert "'x'" in error.message
    assert "line 3, column 3" in error.message
    assert str(error.where) == "g.yaml: tensors.x (line 5, column 3)"


@pytest.mark.parametrize(
    ("text", "part", "place"),
    [
        ("a: !!python/object/apply:os.system [x]", "tag", (1, 4)),
        ("a: !!str 1", "tag", (1, 4)),
        ("a: !mine {}", "tag", (1, 4)),
        ("a: ! x", "tag", (1, 4)),
        ("b: &b {}\na:\n  <<: *b", "merge", (3, 3)),
        ("a: 1\n---\na: 2\n", "more than one document", (2, 1)),
        ("1: a", "key 1 is an integer", (1, 1)),
        ("1.5: a", "key 1.5 is a number", (1, 1)),
        ("true: a", "key true is a boolean", (1, 1)),
        ("~: a", "key ~ is null", (1, 1)),
        ("? [a, b]\n: c", "key is a string", (1, 3)),
        ("? {a: b}\n: c", "key is a string", (1, 3)),
        ("a: &a [*a]", "inside what it names", (1, 8)),
        ("a: &a\n  b:\n    c: *a", "inside what it names", (3, 8)),
        ("a: *nowhere", "names nothing", (1, 4)),
        ("a: &x 1\n*x : 2", "key is a string", (2, 1)),
    ],
)
def test_what_a_graph_file_has_not(parser: Any, text: str, part: str, place: tuple[int, int]) -> None:
    error = fault(text, parser)
    assert error.code in ("KG309", "KG305")
    assert part in error.message or error.code == "KG305"
    assert error.where is not None
    assert error.where.line == place[0]
    if error.code == "KG309":
        assert error.where.column == place[1]


def test_quoted_merge_key_and_aliased_string_key_are_keys(parser: Any) -> None:
    assert value("'<<': 1", parser) == {"<<": 1}
    assert value("a: &k name\n*k : 2", parser) == {"a": "name", "name": 2}


def test_aliases_repeat_values(parser: Any) -> None:
    assert value("a: &a [1, &b x]\nb: *a\nc: *b\na2: &a 3\nd: *a", parser) == {
        "a": [1, "x"],
        "b": [1, "x"],
        "c": "x",
        "a2": 3,
        "d": 3,
    }


def test_yaml_06_five_thousand_aliases_are_legitimate(parser: Any) -> None:
    text = "kgrun: 1\ntensors:\n  t: &t {dtype: float32, shape: [1, 2, 3, 4]}\n"
    document = read_yaml(text + "".join(f"  t{i}: *t\n" for i in range(5000)), "g.yaml", parser)
    assert isinstance(document.value, dict)
    assert len(document.value["tensors"]) == 5001
    assert document.locate(("tensors", "t4999"), False) == (5003, 10)


def bomb(levels: int, width: int) -> str:
    lines = [f"a0: &a0 [{', '.join('x' * width)}]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(lines)


def test_yaml_06_alias_bomb_is_refused_naming_the_limit(parser: Any) -> None:
    error = fault(bomb(9, 10), parser)
    assert error.code == "KG307"
    assert "1,000,000 values" in error.message


def test_yaml_06_aliases_cannot_pile_up_levels(parser: Any) -> None:
    error = fault(bomb(500, 1), parser)
    assert error.code == "KG307"
    assert "100 levels" in error.message


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000])
def test_yaml_06_deep_yaml_is_refused_naming_the_limit(parser: Any, text: str) -> None:
    error = fault(text, parser)
    assert error.code == "KG307"
    assert "100 levels" in error.message


def test_too_many_values_are_refused(parser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "MAX_VALUES", 100)
    assert fault(f"[{'0, ' * 200}0]", parser).code == "KG307"


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: b: c", 1), ("a: [1, 2", 1), ("a:\n\tb: 1", 2), ("a: 'x", 1), ("x: 1\n  y: 2", 2), ("%YAML 9\n---\na: 1", 1)],
)
def test_syntax_errors_have_places(parser: Any, text: str, line: int) -> None:
    error = fault(text, parser)
    assert error.code == "KG305"
    assert error.where is not None
    assert error.where.line is not None
    assert line <= error.where.line <= line + 1
    assert error.help == ("indent with spaces, not tabs" if "\t" in text else None)


def test_control_characters_and_half_characters_are_refused(parser: Any) -> None:
    assert fault("a: \x00", parser).code == "KG305"
    assert fault('a: "\\ud800"', parser).code == "KG305"


def test_places_of_values_and_keys(parser: Any) -> None:
    document = read_yaml("a:\n- 1\n- {b c: null,\n   d: [x]}\ne: &e {f: 1}\ng: *e\n", "g.yaml", parser)
    assert document.locate((), False) == (1, 1)
    assert document.locate(("a", 1, "d", 0), False) == (4, 8)
    assert document.locate(("a", 1, "d"), True) == (4, 4)
    assert document.locate(("g",), False) == (6, 4)
    assert document.locate(("g", "f"), False) == (5, 11)
    assert document.locate(("a", 1, "missing"), False) == (3, 3)


def test_unicode_and_a_directive_of_version_1_2_are_read(parser: Any) -> None:
    assert value("%YAML 1.2\n---\nnäme: 'größe 😀'\n", parser) == {"näme": "größe 😀"}
