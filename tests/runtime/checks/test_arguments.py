"""Launch arguments against signatures: count, width, type, direction, place."""

from __future__ import annotations

from typing import Any

import pytest

from kgrun.graphs.bind import bind
from kgrun.runtime.checks.arguments import argument_faults, c_type, element_warnings
from kgrun.runtime.compile.signature import ParamInfo
from tests.support import graph, node, tensor

F = "float32"
X = ParamInfo("pointer", 8, 0, "float const*", True)
Y = ParamInfo("pointer", 8, 8, "float*", False)
N = ParamInfo("scalar", 4, 16, "int", None)
A = ParamInfo("scalar", 4, 20, "float", None)


def made(args: list[Any], **more: Any) -> Any:
    tensors = {"x": tensor("input", (4,), F), "y": tensor(None, (4,), F)}
    return bind(graph([node("k0", ["x"], ["y"], args=args, **more)], tensors, ["y"]))


def faults(args: list[Any], params: list[ParamInfo], **more: Any) -> list[str]:
    bound = made(args, **more)
    return [fault.message for fault in argument_faults(bound, bound.nodes[0], params)]


def test_what_fits_has_no_fault() -> None:
    assert faults(["x", "y", {"int32": 3}, {"float32": 1}], [X, Y, N, A]) == []
    assert faults(["x", "y", {"uint32": 3}, {"float32": 1}], [X, Y, N, A]) == []


def test_launch_03_int64_for_int() -> None:
    (text,) = faults(["x", "y", {"int64": 3}], [X, Y, N])
    assert text == "argument 2 of 'k0', `int` in kernel 'k', takes 4 bytes, but int64 has 8"


def test_float_for_int_and_int_for_float() -> None:
    texts = faults(["x", "y", {"float32": 3}, {"int32": 1}], [X, Y, N, A])
    assert [text.rpartition(", ")[2] for text in texts] == ["is passed float32", "is passed int32"]


def test_missing_arguments() -> None:
    (text,) = faults(["x", "y"], [X, Y, N])
    assert text == "kernel 'k' takes 3 arguments (`float const*`, `float*`, `int`), 'k0' passes 2"


def test_a_const_pointer_as_output() -> None:
    (text,) = faults(["y", "x", {"int32": 3}], [X, Y, N])
    assert "output 'y' of 'k0' is argument 0, `float const*`" in text
    assert faults(["y", "x", "y"], [X, Y, ParamInfo("pointer", 8, 16, "float*", False)]) == []


def test_a_value_for_a_pointer_and_an_address_for_a_value() -> None:
    texts = faults([{"int64": 0}, "y", "x"], [X, Y, N])
    assert "is a pointer, but a value of type int64 is passed" in texts[0]
    assert "takes 4 bytes, but an address is passed" in texts[1]
    assert faults([None, "y"], [X, Y]) == []


def test_offsets_are_compared_where_types_are_unknown() -> None:
    bare = [ParamInfo("pointer", 8, 0, "", None), ParamInfo("scalar", 4, 8, "", None)]
    assert faults(["y", {"int32": 1}], bare) == []
    packed = [*bare, ParamInfo("struct", 16, 16, "", None)]
    assert faults(["y", {"int32": 1}, {"float4": [1, 2, 3, 4]}], packed) == []
    (text,) = faults(["y", {"int32": 1}, {"bytes": "00" * 16}], [*bare, ParamInfo("struct", 16, 32, "", None)])
    assert "stands at byte 32 of the arguments, but is passed at byte 16" in text


@pytest.mark.parametrize(
    ("kind", "value", "type_name", "size", "fits"),
    [
        ("float16", 0.5, "__half", 2, True),
        ("uint16", 1, "__half", 2, True),
        ("bfloat16", 0.5, "__half", 2, False),
        ("float64", 0.5, "double", 8, True),
        ("int64", 1, "double", 8, False),
        ("bool", True, "bool", 1, True),
        ("int64", 1, "long", 8, True),
        ("uint64", 1, "unsigned long", 8, True),
        ("int8", 1, "char", 1, True),
    ],
)
def test_scalar_types(kind: str, value: object, type_name: str, size: int, fits: bool) -> None:
    assert (faults(["y", {kind: value}], [Y_FIRST, ParamInfo("scalar", size, 8, type_name, None)]) == []) == fits


Y_FIRST = ParamInfo("pointer", 8, 0, "float*", False)


@pytest.mark.parametrize(
    ("pointee", "warned"),
    [
        ("float*", False),
        ("float4*", False),
        ("int4*", False),
        ("void*", False),
        ("unsigned char*", False),
        ("int*", True),
        ("double*", True),
        ("__half*", True),
        ("Vec<float>*", False),
    ],
)
def test_element_types_of_pointers_are_worth_a_warning(pointee: str, warned: bool) -> None:
    bound = made(["y"])
    found = list(element_warnings(bound, bound.nodes[0], [ParamInfo("pointer", 8, 0, pointee, False)]))
    assert bool(found) == warned
    assert all(w.code == "W-ELEMENT-TYPE" and w.path == ("nodes", 0, "args", 0) for w in found)


@pytest.mark.parametrize("text", ["const float*", "float const*", "const float* __restrict__", "float const *"])
def test_qualifiers_stand_on_either_side(text: str) -> None:
    found = c_type(text)
    assert (found.name, found.pointer, found.const) == ("float", True, True)


def test_words_of_integers() -> None:
    assert c_type("unsigned").name == "unsigned int"
    assert c_type("long long int").name == "long long"
    assert c_type("int").const is None
