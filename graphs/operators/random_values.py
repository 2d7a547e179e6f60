"""Random numbers that are the same at every run and on every device.

Element i of a node is a function of the node's stream and i alone: two 64-bit words of a SplitMix64 sequence (Steele,
Lea, Flood 2014). The stream comes from `seed`, or from the node's name where there is none.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence

from kgrun.graphs.dtypes import NUMBERS, ONNX_DTYPES, WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register

GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ANY = NUMBERS | {"bool"}


def mixed(word: int) -> int:
    """SplitMix64's output function."""
    word = (word ^ (word >> 30)) * FIRST & (2**64 - 1)
    word = (word ^ (word >> 27)) * SECOND & (2**64 - 1)
    return word ^ (word >> 31)


def stream(call: OpCall) -> int:
    """The 64-bit word that a call's random words start from."""
    seed = call.attributes.get("seed")
    if seed is None:
        return mixed(zlib.crc32(call.node.encode()) + GOLDEN)
    return mixed(int(struct.unpack("<Q", struct.pack("<d", seed))[0]))


def _dtype(call: OpCall, default: str, allowed: frozenset[str]) -> str:
    named = call.attributes.get("dtype", default)
    found = ONNX_DTYPES[named] if isinstance(named, int) else named
    if found not in allowed:
        gives = f"it gives {', '.join(sorted(allowed))}"
        call.fail(f"{call.op} does not give {found}", "attributes", "dtype", help=gives)
    return found


def _shaped(call: OpCall) -> list[TensorType]:
    shape = call.attributes["shape"]
    if min(shape, default=0) < 0:
        call.fail(f"{call.op}: {list(shape)} is no shape", "attributes", "shape")
    return [TensorType(_dtype(call, "float32", WIDE_FLOATS), tuple(shape))]


def _like(call: OpCall) -> list[TensorType]:
    source = call.input(0)
    default = source.dtype if source.dtype in WIDE_FLOATS else "float32"
    return [TensorType(_dtype(call, default, WIDE_FLOATS), source.shape)]


def _bernoulli(call: OpCall) -> list[TensorType]:
    return [TensorType(_dtype(call, call.input(0).dtype, _ANY), call.input(0).shape)]


def _multinomial(call: OpCall) -> list[TensorType]:
    shape, samples = call.input(0).shape, call.attributes["sample_size"]
    if len(shape) != 2 or shape[1] < 1:
        call.fail(f"Multinomial takes [batch, classes], got {list(shape)}", "inputs", 0)
    if samples < 0:
        call.fail(f"Multinomial: {samples} samples", "attributes", "sample_size")
    return [TensorType(_dtype(call, "int32", frozenset({"int32", "int64"})), (shape[0], samples))]


def _op(
    name: str,
    infer: Callable[[OpCall], Sequence[TensorType]],
    attributes: dict[str, Attribute],
    dtypes: frozenset[str] | None = None,
) -> OpSchema:
    inputs = 0 if dtypes is None else 1
    ignored = {"shape_only": frozenset({0})} if name.endswith("Like") else {}
    return OpSchema(
        name,
        "random_values",
        (inputs, inputs),
        infer,
        dtypes=dtypes or WIDE_FLOATS,
        attributes={"seed": Attribute("float")} | attributes,
        flops=lambda call: 10 * call.outputs[0].size,
        data=ignored,
    )


_NORMAL = {"mean": Attribute("float", 0.0), "scale": Attribute("float", 1.0)}
_UNIFORM = {"high": Attribute("float", 1.0), "low": Attribute("float", 0.0)}
_SHAPED = {"dtype": Attribute("dtype", 1), "shape": Attribute("ints", required=True)}
_TYPED = {"dtype": Attribute("dtype")}
_SAMPLES = {"dtype": Attribute("dtype", 6), "sample_size": Attribute("int", 1)}
register(
    _op("RandomNormal", _shaped, _NORMAL | _SHAPED),
    _op("RandomUniform", _shaped, _UNIFORM | _SHAPED),
    _op("RandomNormalLike", _like, _NORMAL | _TYPED, _ANY),
    _op("RandomUniformLike", _like, _UNIFORM | _TYPED, _ANY),
    _op("Bernoulli", _bernoulli, _TYPED, WIDE_FLOATS),
    _op("Multinomial", _multinomial, _SAMPLES, WIDE_FLOATS),
)
