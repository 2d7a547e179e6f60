"""Operands and attributes of `kgrun run-op` as the command line gives them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.errors import GraphError, Place, UsageError, did_you_mean, placed

if TYPE_CHECKING:
    from kgrun.graphs.operators.base import OpSchema
    from kgrun.runtime.eager.operator import Operand

ABSENT = "-"
_FILE = re.compile(r"\.(npy|npz|safetensors)(#|$)", re.IGNORECASE)
_TYPE = re.compile(r"([a-z0-9_]+)(?:\[([0-9, ]*)\])?")
_FORMS = "FILE.npy, FILE.npz#KEY, DTYPE:VALUE as in int64:[2,-1], DTYPE[SHAPE] as in float16[64,64] for random elements"


def parse_operand(text: str, position: int) -> Operand | None:
    """One `--in`: a file, a value, or a type; None for `-`, an optional input that is absent.

    Raises:
        UsageError: KG272 for words that are none of these. GraphError: KG37x for the file or the value.
    """
    from kgrun.runtime.eager.operator import Operand

    if text == ABSENT:
        return None
    where = Place(f"--in {text}")
    head, colon, rest = text.partition(":")
    dtype = head if colon and head in DTYPES else None
    with placed(where):
        if _FILE.search(text):
            array = _read(rest if dtype else text, dtype)
            return Operand(array.dtype.name, array.shape, array)
        if dtype is not None:
            array = _value(rest, dtype)
            return Operand(dtype, array.shape, array)
        match = _TYPE.fullmatch(text)
        if match is None or match[1] not in DTYPES:
            help = did_you_mean(match[1], DTYPES) if match else None
            raise UsageError(f"input {position} is {text!r}, which is no operand", code="KG272", help=help or _FORMS)
        shape = tuple(int(extent) for extent in (match[2] or "").split(",") if extent.strip())
        return Operand(match[1], shape)


def _read(file: str, dtype: str | None) -> Any:
    from kgrun.graphs.data_files import read_checked
    from kgrun.graphs.data_paths import parse_reference

    reference = parse_reference(file)
    return read_checked(Path(reference.file), reference, dtype, None, file)


def _value(text: str, dtype: str) -> Any:
    from kgrun.graphs.data import constant_value, value_array
    from kgrun.graphs.schema.tensors import TensorSpec

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text if text in ("nan", "inf", "-inf") else None
        if value is None:
            raise UsageError(f"{text!r} is no number and no list", code="KG272", help=_FORMS) from None
    try:
        spec = TensorSpec.model_validate({"role": "constant", "dtype": dtype, "value": value})
    except ValueError:
        raise UsageError(f"{text!r} is no number and no list", code="KG272", help=_FORMS) from None
    _, shape, _ = constant_value(spec, {})
    return value_array(value, dtype, shape, {})


def parse_attributes(words: Iterable[str], schema: OpSchema) -> dict[str, Any]:
    """`NAME=VALUE` words, each value read as the schema's kind of that attribute says.

    Raises:
        UsageError: KG253 for a word or a value that cannot be read. GraphError: KG330 for no attribute of the operator.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise UsageError(f"--attr: {word!r} is not NAME=VALUE", code="KG253", help="for example --attr axis=1")
        if name in found:
            raise UsageError(f"--attr {name} is given twice", code="KG253")
        attribute = schema.attributes.get(name)
        if attribute is None:
            known = ", ".join(sorted(schema.attributes)) or "none"
            raise GraphError(
                f"{schema.name} has no attribute {name!r}",
                code="KG330",
                where=f"--attr {word}",
                help=did_you_mean(name, schema.attributes) or f"attributes of {schema.name}: {known}",
            )
        plural = attribute.kind.endswith("s")
        kind = attribute.kind.removesuffix("s")
        items = [part.strip() for part in text.strip("[]() ").split(",") if part.strip()] if plural else [text]
        try:
            values = [_item(item, kind) for item in items]
        except ValueError:
            raise UsageError(
                f"--attr {name}: {text!r} is not of kind {attribute.kind}", code="KG253", help=_example(name, plural)
            ) from None
        found[name] = values if plural else values[0]
    return found


def _item(text: str, kind: str) -> Any:
    if kind == "int" or (kind == "dtype" and text.isdecimal()):
        return int(text)
    if kind == "float":
        return float(text)
    if kind == "number":
        if text in ("true", "false"):
            return text == "true"
        return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
    return text


def _example(name: str, plural: bool) -> str:
    return f"for example --attr {name}={'1,2' if plural else '1'}"


def named_fault(error: GraphError, operands: Mapping[int, str], attributes: Iterable[str]) -> GraphError:
    """The error of a node of the operator's graph, with the words of the command line as its place."""
    place = error.where
    path = place.path if place is not None and place.file is None else ()
    match path:
        case ("tensors", str(tensor), *_) if tensor[:1] == "x":
            error.where = Place(f"--in {operands.get(int(tensor[1:]), tensor)}")
        case ("nodes", _, "inputs", int(position)):
            error.where = Place(f"--in {operands.get(position, position)}")
        case ("nodes", _, "attributes", str(name), *_):
            words = [word for word in attributes if word.startswith(f"{name}=")]
            error.where = Place(f"--attr {words[0] if words else name}")
        case _:
            if path:
                error.where = None
    return error
