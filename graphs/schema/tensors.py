"""Tensors of the graph file: role, type, shape, and where the bytes come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from kgrun.graphs.dtypes import MAX_AXES, DTypeName
from kgrun.graphs.schema.common import Expr, Integer, Name, NonNegativeInt, PositiveInt, Record

Role = Literal["input", "parameter", "constant", "output", "intermediate"]
Number = bool | Integer | float
Shape = Annotated[list[Expr], Field(max_length=MAX_AXES)]


def _check_value(value: Any) -> Any:
    # An explicit stack: values nest as deep as the loader allows, and may hold a million numbers.
    stack = [] if value is None else [value]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, float):
            if item != item or item in (float("inf"), float("-inf")):
                raise ValueError('write "nan", "inf" or "-inf" as strings')
        elif not isinstance(item, (bool, int, str)):
            raise ValueError("a value is a number, a boolean, a string or a nested list of them")
    return value


# Strings inside a value are "nan", "inf", "-inf" for floats and dimension expressions for integers.
Value = Annotated[Any, AfterValidator(_check_value), WithJsonSchema({"type": ["number", "boolean", "string", "array"]})]


class UniformInit(Record):
    """Uniform random numbers in [low, high)."""

    uniform: tuple[float | Integer, float | Integer] = Field(strict=False)
    seed: NonNegativeInt | None = None


class NormalInit(Record):
    """Normal random numbers with mean and standard deviation."""

    normal: tuple[float | Integer, float | Integer] = Field(strict=False)
    seed: NonNegativeInt | None = None


class IntegersInit(Record):
    """Uniform random integers in [low, high)."""

    integers: tuple[Integer, Integer] = Field(strict=False)
    seed: NonNegativeInt | None = None


class FillInit(Record):
    """Every element the same; "nan", "inf" and "-inf" are written as strings."""

    fill: Number | Literal["nan", "inf", "-inf"]


class RangeInit(Record):
    """start, start + step, start + 2·step, … in row-major order."""

    arange: tuple[float | Integer, float | Integer] = Field(strict=False)


_INITS = ("uniform", "normal", "integers", "fill", "arange")


def _init_kind(value: Any) -> str | None:
    for kind in _INITS:
        if (kind in value) if isinstance(value, dict) else hasattr(value, kind):
            return kind
    return None


Init = Annotated[
    Annotated[UniformInit, Tag("uniform")]
    | Annotated[NormalInit, Tag("normal")]
    | Annotated[IntegersInit, Tag("integers")]
    | Annotated[FillInit, Tag("fill")]
    | Annotated[RangeInit, Tag("arange")],
    Discriminator(
        _init_kind,
        custom_error_type="init_kind",
        custom_error_message="an init has one of the keys uniform, normal, integers, fill, arange",
    ),
]


class GraphOutputRef(Record):
    """An output of another graph of the same session (S23)."""

    graph: Name
    output: Name


class EmbeddingCache(Record):
    """Keep this parameter on the host, with `rows` of it cached on the device (S148)."""

    rows: PositiveInt
    persist: bool = Field(False, description="write updated rows to the data file itself, not to a private copy")


class TensorSpec(Record):
    """One tensor.

    `data` names a file beside the graph: `x.npy`, `x.npz#key`, `x.safetensors#key` or `x.onnx#key`. `init` makes the
    data when no file and no `--input` is given. `value` states it inline (constants). `string` is a constant of UTF-8
    bytes.
    """

    role: Role | None = Field(None, description="intermediate unless it carries data or is a graph output")
    dtype: DTypeName | None = None
    shape: Shape | None = None
    max_shape: Shape | None = Field(None, description="upper bounds of a data-dependent shape")
    data: Name | None = None
    value: Value = None
    string: str | None = None
    init: Init | None = None
    valid: bool = Field(True, description="false: an input position that gets no memory (S15)")
    alias_of: Name | None = Field(None, description="shares the memory of another input or parameter (S24)")
    from_graph: GraphOutputRef | None = Field(None, description="shares the memory of another graph's output (S23)")
    lifelong: bool = Field(False, description="keep its memory for the whole run (S55)")
    pin: bool = Field(False, description="keep a second, static copy that outlives the run (S38)")
    no_reuse: bool = Field(False, description="never share its bytes with another tensor (S46)")
    location: Literal["device", "host"] = "device"
    offload: Literal["auto", "always", "never"] = "auto"
    cache: EmbeddingCache | None = None
    doc: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> TensorSpec:
        sources = [k for k in ("data", "value", "string", "init", "from_graph") if getattr(self, k) is not None]
        if len(sources) > 1 and set(sources) != {"data", "init"}:
            raise ValueError(f"{' and '.join(sources)} exclude each other")
        if self.role == "constant" and self.value is None and self.string is None and self.data is None:
            raise ValueError("a constant needs value, string or data")
        if self.string is not None and (self.dtype not in (None, "uint8") or self.shape is not None):
            raise ValueError("a string constant is uint8 of shape [length]; leave dtype and shape out")
        return self
