"""What every record of the graph file shares: strictness, names, expressions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from kgrun.graphs.errors import GraphError
from kgrun.graphs.expressions import parse


class Record(BaseModel):
    """A strict, frozen record: no unknown keys, no silent conversions, no NaN."""

    # Built when it is first used: a record inside another needs no validator of its own.
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True, defer_build=True
    )


def _check_expression(value: str) -> str:
    try:
        parse(value)
    except GraphError as error:
        raise ValueError(error.message) from None
    return value


def _whole_number(value: Any) -> Any:
    # Literal and float fields would take a boolean for a number, and any integer for a float.
    if isinstance(value, bool) or (isinstance(value, int) and not -(2**63) <= value < 2**64):
        raise ValueError("not a 64-bit integer")
    return value


def _in_64_bits(value: Any) -> Any:
    return value if isinstance(value, bool) else _whole_number(value)


Exactly = BeforeValidator(_whole_number)
In64Bits = BeforeValidator(_in_64_bits)

Name = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**64)]
ExprText = Annotated[str, StringConstraints(max_length=1_000), AfterValidator(_check_expression)]
Expr = Integer | ExprText
