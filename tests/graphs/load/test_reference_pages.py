"""docs/format.md and docs/errors.md say what the code does: examples load, keys, limits and codes are complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kgrun.graphs.dtypes import DTYPES, VECTORS
from kgrun.graphs.load import limits, parse_graph
from kgrun.graphs.schema.graph import json_schema

ROOT = Path(__file__).parents[3]
FORMAT = (ROOT / "docs" / "format.md").read_text("utf-8")
ERRORS = (ROOT / "docs" / "errors.md").read_text("utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", FORMAT, re.DOTALL)


def keys(schema: Any) -> Iterator[str]:
    """Every key of every record of the JSON Schema."""
    if isinstance(schema, dict):
        if schema.get("additionalProperties") is False and "maxProperties" not in schema:
            yield from schema["properties"]
        for part in schema.values():
            yield from keys(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from keys(part)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_load(number: int) -> None:
    text = EXAMPLES[number]
    graph = parse_graph((text if "kgrun:" in text else f"kgrun: 1\n{text}").encode(), name="format.md", format="yaml")
    assert graph.tensors


def test_the_page_has_examples_of_each_kind() -> None:
    text = "".join(EXAMPLES)
    for word in ("kernel:", "op:", "value:", "string:", "data:", "init:", "workspace:", "struct:", "inplace:"):
        assert word in text


def test_every_key_of_the_format_is_described() -> None:
    found = set(keys(json_schema()))
    assert len(found) > 60
    assert [key for key in sorted(found) if not re.search(rf"[`{{ ]{re.escape(key)}[`: ,]", FORMAT)] == []


def test_every_type_is_listed() -> None:
    assert [name for name in DTYPES if f"`{name}`" not in FORMAT] == []
    assert [name for name in VECTORS if f"`{name[:-1]}`" not in FORMAT] == []


def test_the_limits_are_those_of_the_code() -> None:
    for line in (
        f"| size of the file | {limits.MAX_BYTES >> 20} MiB |",
        f"| lists and mappings inside each other | {limits.MAX_DEPTH} levels |",
        f"| values in the file | {limits.MAX_VALUES:,} |",
        f"| values that YAML aliases repeat | {limits.MAX_ALIASED_VALUES:,} |",
        f"| characters of one number (YAML; JSON floats) | {limits.MAX_NUMBER_LENGTH} |",
        f"| faults reported at once | {limits.MAX_FAULTS} |",
    ):
        assert line in FORMAT


def test_every_code_is_documented() -> None:
    used: dict[str, str] = {}
    for folder in ("graphs", "runtime", "cli"):
        for path in (ROOT / folder).rglob("*.py"):
            used |= dict.fromkeys(re.findall(r'"(KG\d{3})"', path.read_text("utf-8")), str(path.relative_to(ROOT)))
    assert len(used) > 40
    assert {code: path for code, path in sorted(used.items()) if code not in ERRORS} == {}


def test_a_usage_code_means_one_thing() -> None:
    rows = re.findall(r"^\| (KG2\d\d) \| (.*) \|$", ERRORS, re.MULTILINE)
    assert len(rows) > 30
    assert [code for code, meaning in rows if ";" in meaning] == []
