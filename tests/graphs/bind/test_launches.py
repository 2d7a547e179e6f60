"""Launch arguments: packing of typed scalars, vectors and structs, and what is refused."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from kgrun.graphs.bound import NullArgument, ScalarArgument, TensorArgument, WorkspaceArgument
from kgrun.graphs.errors import GraphError, UsageError
from tests.support import bound, node, tensor

X = {"x": tensor("input", ["n"], "float32")}


def args_of(args: list[Any] | None, **more: Any) -> tuple[Any, ...]:
    graph = bound([node("k0", ["x"], ["y"], args=args, **more)], X, ["y"], dims={"n": 64})
    launch = graph.nodes[0].launch
    assert launch is not None
    return launch.args


def scalar(entry: dict[str, Any]) -> ScalarArgument:
    found = args_of(["x", "y", entry])[2]
    assert isinstance(found, ScalarArgument)
    return found


def test_arguments_default_to_inputs_outputs_workspaces() -> None:
    assert args_of(None, workspace=[16]) == (TensorArgument("x"), TensorArgument("y"), WorkspaceArgument(0))


def test_arguments_come_in_any_order_with_null() -> None:
    assert args_of(["y", None, "x"]) == (TensorArgument("y"), NullArgument(), TensorArgument("x"))


@pytest.mark.parametrize(
    ("entry", "data"),
    [
        ({"int32": 7}, struct.pack("<i", 7)),
        ({"int64": -7}, struct.pack("<q", -7)),
        ({"uint8": 255}, b"\xff"),
        ({"float32": 2}, struct.pack("<f", 2.0)),
        ({"float64": 0.1}, struct.pack("<d", 0.1)),
        ({"float16": 0.1}, bytes.fromhex("662e")),
        ({"bfloat16": 0.1}, bytes.fromhex("cd3d")),
        ({"float8_e4m3fn": 1.0}, b"\x38"),
        ({"bool": True}, b"\x01"),
        ({"int32": "cdiv(n, 5) + 1"}, struct.pack("<i", 14)),
        ({"float32": "n"}, struct.pack("<f", 64.0)),
        ({"float32": "-inf"}, struct.pack("<f", float("-inf"))),
        ({"float32": 1e300}, struct.pack("<f", float("inf"))),
        ({"bytes": "00ff10"}, b"\x00\xff\x10"),
    ],
)
def test_scalars_are_packed_as_their_c_type(entry: dict[str, Any], data: bytes) -> None:
    assert scalar(entry).data == data


def test_nan_is_packed() -> None:
    (value,) = struct.unpack("<f", scalar({"float32": "nan"}).data)
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("kind", "align", "size"),
    [("float4", 16, 16), ("float3", 4, 12), ("int2", 8, 8), ("double4", 16, 32), ("char3", 1, 3)],
)
def test_vectors_have_cudas_alignment(kind: str, align: int, size: int) -> None:
    count = int(kind[-1])
    found = scalar({kind: [1] * count})
    assert (found.align, len(found.data)) == (align, size)


def test_structs_are_laid_out_as_in_c() -> None:
    found = scalar({"struct": [{"int8": 1}, {"float64": 2.0}, {"int32": 3}]})
    assert found.align == 8
    assert found.data == b"\x01" + bytes(7) + struct.pack("<d", 2.0) + struct.pack("<i", 3) + bytes(4)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"int32": 2**31}, "does not fit int32"),
        ({"uint8": -1}, "does not fit uint8"),
        ({"int32": 1.5}, "is no int32"),
        ({"float32": True}, "is no float32"),
        ({"bool": 2}, "does not fit bool"),
    ],
)
def test_values_out_of_range_are_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        args_of(["x", "y", entry])
    assert str(caught.value.where).startswith("nodes[0].args[2].")


def test_a_name_that_is_no_operand_is_refused() -> None:
    with pytest.raises(GraphError, match="neither an input nor an output"):
        args_of(["x", "y", "z"])


def test_a_dimension_passed_by_name_gets_advice() -> None:
    with pytest.raises(GraphError) as caught:
        args_of(["x", "y", "n"])
    assert caught.value.help == "a scalar names its type: {int32: n}"


def test_an_unbound_name_in_an_expression_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="'m' is unbound") as caught:
        args_of(["x", "y", {"int32": "m + 1"}])
    assert str(caught.value.where) == "nodes[0].args[2].int32"


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ([1, 1, 65536], [1], r"grid\[2\]=65536 > 65535"),
        ([1], [1025], r"block\[0\]=1025"),
        ([1], [32, 33], "1056"),
        ([1], [1, 1, 65], r"block\[2\]=65"),
        ([0], [1], r"grid\[0\]=0"),
    ],
)
def test_launches_beyond_the_limits_are_refused(grid: list[int], block: list[int], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        args_of(None, grid=grid, block=block)
    assert caught.value.code == "KG360"


@pytest.mark.parametrize("grid", [[1, 65535, 1], [2147483647, 1, 1], [1, 1, 65535]])
def test_launches_at_the_limits_pass(grid: list[int]) -> None:
    graph = bound([node("k0", ["x"], ["y"], grid=grid)], X, ["y"], dims={"n": 64})
    assert graph.nodes[0].launch is not None
    assert list(graph.nodes[0].launch.grid) == grid
