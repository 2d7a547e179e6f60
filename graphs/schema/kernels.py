"""Custom kernels of the graph file, and the arguments of their launches."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema

from kgrun.graphs.dtypes import DTYPES, VECTORS
from kgrun.graphs.schema.common import Expr, Name, NonNegativeInt, PositiveInt, Record
from kgrun.graphs.schema.origin import Sourced

Language = Literal["auto", "cuda", "ptx", "cubin"]


class KernelSpec(Sourced, Record):
    """One kernel function: CUDA C, PTX or a cubin, in a file beside the graph or as inline text.

    `source` is inline text when it holds a line break or a brace, a path otherwise; `language: auto` goes by the path's
    ending (.cu, .ptx, .cubin) or the text itself.
    """

    source: Annotated[str, StringConstraints(min_length=1)]
    entry: Name = Field(description="name of the __global__ function; a template is written with its arguments")
    language: Language = "auto"
    ptx: str | None = Field(None, min_length=1, description="where `source` is a cubin: its PTX, for the CPU device")
    options: list[str] = []
    include_dirs: list[str] = []
    params: list[str] | None = Field(None, description="C types of the parameters, where the code does not tell")
    registers: PositiveInt | None = Field(None, description="registers a thread, where known")
    static_shared: NonNegativeInt | None = Field(None, description="bytes of static shared memory, where known")
    doc: str | None = None


SCALARS = tuple(DTYPES) + tuple(VECTORS)


def _scalar_argument(value: dict[str, Any]) -> dict[str, Any]:
    if len(value) != 1:
        raise ValueError("an argument object has exactly one key, its type")
    (kind, content), *_ = value.items()
    if kind in SCALARS:
        if isinstance(content, dict):
            raise ValueError(f"the value of a {kind} argument is a number or an expression")
        if isinstance(content, list) and (kind not in VECTORS or len(content) != VECTORS[kind][1]):
            raise ValueError(f"a {kind} argument has {VECTORS[kind][1] if kind in VECTORS else 'one'} value(s)")
        if kind in VECTORS and not isinstance(content, list):
            raise ValueError(f"a {kind} argument is a list of {VECTORS[kind][1]} values")
    elif kind == "workspace":
        if not isinstance(content, int) or isinstance(content, bool) or content < 0:
            raise ValueError("a workspace argument is the index of the node's workspace")
    elif kind == "bytes":
        if not isinstance(content, str) or not _is_hex(content):
            raise ValueError("a bytes argument is hexadecimal text")
    elif kind == "struct":
        if not isinstance(content, list) or not content:
            raise ValueError("a struct argument is a list of typed scalars")
        for member in content:
            if not isinstance(member, dict) or next(iter(member), None) not in SCALARS:
                raise ValueError("a struct argument is a list of typed scalars")
            _scalar_argument(member)
    else:
        raise ValueError(f"unknown argument type {kind!r}; a scalar names its type, for example {{int32: 7}}")
    return value


def _is_hex(text: str) -> bool:
    try:
        return len(bytes.fromhex(text)) > 0
    except ValueError:
        return False


# A tensor's name (its address is passed), null, or one typed value: {float32: 2.0}, {int32: "cdiv(n, 4)"},
# {float4: [0, 0, 1, 1]}, {struct: [{int32: 3}, …]}, {bytes: "00ff"}, {workspace: 0}.
TypedArgument = Annotated[
    dict[str, Any],
    AfterValidator(_scalar_argument),
    WithJsonSchema(
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
            "properties": {kind: {} for kind in (*SCALARS, "workspace", "bytes", "struct")},
        }
    ),
]
Argument = Name | TypedArgument | None


class WorkspaceSpec(Record):
    """Scratch memory of one node: bytes, valid during the node only."""

    nbytes: Expr
    clear: bool = Field(False, description="set to zero before every launch (S81)")
