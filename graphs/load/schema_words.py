"""What validation errors say, in words of the graph file rather than of Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHOWN = 60
_EXPECTED = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "string_type": "a string",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "none_required": "null",
}
_COMPARED = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
    "multiple_of": ("multiple_of", "a multiple of"),
}


def described(value: object) -> str:
    """`value` as the file shows it, shortened."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def expectation(type: str, label: str, context: Mapping[str, Any]) -> str:
    """What the branch `label` of a union, which refused with `type`, would have taken."""
    if "_check_expression" in label:
        return "an expression"
    if type == "literal_error":
        return f"one of {context['expected']}"
    return _EXPECTED.get(type, "something else")


def message(type: str, context: Mapping[str, Any], value: object) -> tuple[str, str]:
    """Code and message of one validation error."""
    if type == "no_branch":
        return "KG313", f"expected {_alternatives(context['expected'])}, got {described(value)}"
    if type in _EXPECTED:
        return "KG313", f"expected {_EXPECTED[type]}, got {described(value)}"
    if type in _COMPARED:
        key, words = _COMPARED[type]
        return "KG314", f"must be {words} {context[key]}, got {described(value)}"
    if type == "literal_error":
        return "KG314", f"{described(value)} is not one of {context['expected']}"
    if type in ("too_short", "too_long"):
        number = context["min_length" if type == "too_short" else "max_length"]
        bound = f"{'at least' if type == 'too_short' else 'at most'} {number} item{'s' * (number != 1)}"
        return "KG314", f"must have {bound}, has {context['actual_length']}"
    if type == "string_too_short":
        return "KG314", "must not be empty"
    if type == "string_too_long":
        return "KG314", f"is longer than {context['max_length']} characters"
    if type == "finite_number":
        return "KG314", f"must be a finite number, got {described(value)}"
    if type == "value_error":
        return "KG315", str(context["error"])
    if type in ("node_kind", "init_kind") and not isinstance(value, dict):
        return "KG313", f"expected a mapping, got {described(value)}"
    if type in ("node_kind", "init_kind"):
        return "KG315", {
            "node_kind": "a node has either `kernel` or `op`",
            "init_kind": "an init has one of the keys uniform, normal, integers, fill, arange",
        }[type]
    return "KG310", f"{described(value)} does not fit here ({type.replace('_', ' ')})"


def _alternatives(expected: list[str]) -> str:
    if "a number" in expected:
        expected = [e for e in expected if e != "an integer"]
    *others, last = expected
    return f"{', '.join(others)} or {last}" if others else last
