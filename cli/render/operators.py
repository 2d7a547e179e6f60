"""Signatures of builtin operators: a page for one, a table of all, and their JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kgrun.cli.render.table import Table
from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import Attribute, OpSchema

_MANY = 1000


def arity(bounds: tuple[int, int]) -> str:
    """`2`, `1 to 3`, `2 or more`."""
    least, most = bounds
    return f"{least}" if least == most else f"{least} or more" if most > _MANY else f"{least} to {most}"


def attribute_text(name: str, attribute: Attribute) -> str:
    """`axis: int = 0`; one of its choices; whether it must be given."""
    kind = "|".join(attribute.choices) or attribute.kind
    if attribute.required:
        return f"{name}: {kind} (required)"
    return f"{name}: {kind}" if attribute.default is None else f"{name}: {kind} = {_default(attribute.default)}"


def _default(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def signature_lines(schema: OpSchema, devices: Mapping[str, bool]) -> Iterator[str]:
    """What an operator takes and gives, line by line."""
    yield f"{schema.name}: {arity(schema.inputs)} in, {arity(schema.outputs)} out"
    everything = schema.dtypes == frozenset(DTYPES)
    yield f"  dtypes       {'all' if everything else ', '.join(n for n in DTYPES if n in schema.dtypes)}"
    if schema.host_inputs:
        yield f"  host inputs  {', '.join(map(str, sorted(schema.host_inputs)))}: their elements decide shapes"
    if schema.dynamic:
        yield "  shapes       of the results are known only after it ran"
    if schema.inplace:
        yield f"  in place of  {', '.join(f'input {i}' for i in schema.inplace)}"
    if schema.alias is not None:
        yield f"  view of      input {schema.alias}: no kernel runs"
    if schema.view is not None:
        yield "  view of      input 0 where a call leaves its bytes as they are: no kernel runs then"
    for name, attribute in schema.attributes.items():
        yield f"  attribute    {attribute_text(name, attribute)}"
    yield f"  runs on      {', '.join(name for name, there in devices.items() if there) or 'no device'}"


def operator_table(schemas: Mapping[str, OpSchema]) -> Table:
    """A row each operator."""
    rows = [
        (
            s.name,
            arity(s.inputs),
            arity(s.outputs),
            ", ".join(s.attributes),
            "shapes known after the run" if s.dynamic else "",
        )
        for s in schemas.values()
    ]
    return Table("Operators", ("operator", "inputs", "outputs", "attributes", "note"), rows, rest="operators")


def operator_row(schema: OpSchema) -> dict[str, Any]:
    """An operator as JSON; `most` inputs or outputs null: no limit."""
    return {
        "name": schema.name,
        "family": schema.family,
        "inputs": _bounds(schema.inputs),
        "outputs": _bounds(schema.outputs),
        "dtypes": [name for name in DTYPES if name in schema.dtypes],
        "host_inputs": sorted(schema.host_inputs),
        "dynamic": schema.dynamic,
        "view_of": schema.alias,
        "attributes": [
            {
                "name": name,
                "kind": a.kind,
                "required": a.required,
                "default": list(a.default) if isinstance(a.default, tuple) else a.default,
                "choices": list(a.choices),
            }
            for name, a in schema.attributes.items()
        ],
    }


def _bounds(bounds: tuple[int, int]) -> dict[str, int | None]:
    return {"least": bounds[0], "most": None if bounds[1] > _MANY else bounds[1]}
