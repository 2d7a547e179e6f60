"""Calls of operators bent out of shape: inference refuses them with its own errors, or every device takes them."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import KgrunError
from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import Attribute, OpCall, TensorType
from kgrun.runtime.kernels.base import cpu_kernel, cuda_kernel, dynamic_kernel
from tests.runtime.kernels.cuda.emulation import array_dtype, random_array
from tests.runtime.kernels.cuda.operator_calls import calls_of

OPS = sorted(name for name, schema in all_schemas().items() if schema.family != "collectives")
INTEGERS = (-3, -2, -1, 0, 1, 2, 3, 5)
STRANGE = (None, None, float("nan"), float("inf"), float("-inf"))
MOST = 200_000  # elements of a result worth computing

Types = list[TensorType | None]


def drawn(spec: Attribute, rng: random.Random) -> Any:
    """Any value of an attribute's kind."""
    many = {"ints": INTEGERS, "floats": (0.5, 1.0, 2.0), "numbers": (0, 1, 2), "strings": ("",)}
    if spec.choices:
        return rng.choice(spec.choices)
    if spec.kind in many:
        return [rng.choice(many[spec.kind]) for _ in range(rng.randint(0, 4))]
    if spec.kind == "dtype":
        return rng.choice(("float32", "int32", "bool", "float16"))
    return rng.choice({"int": INTEGERS, "string": ("", "ij,jk", "i->...")}.get(spec.kind, (-1.0, 0.0, 0.5, 2.0)))


def resized(types: Types, rng: random.Random) -> None:
    """One size gone from one input, or from all that have it."""
    index = rng.randrange(len(types))
    chosen = types[index]
    if chosen is None or not chosen.shape:
        return
    old = rng.choice(chosen.shape)
    new, everywhere = rng.choice((0, 1, 2, old + 1)), rng.random() < 0.6
    for at, type_ in enumerate(types):
        if type_ is not None and type_.value is None and (everywhere or at == index):
            types[at] = TensorType(type_.dtype, tuple(new if size == old else size for size in type_.shape))


def revalued(types: Types, rng: random.Random) -> None:
    """One element of one known input changed."""
    index = rng.randrange(len(types))
    chosen = types[index]
    if chosen is not None and chosen.value:
        value = list(chosen.value)
        value[rng.randrange(len(value))] = rng.choice(INTEGERS)
        types[index] = TensorType(chosen.dtype, chosen.shape, tuple(value))


def bent(call: OpCall, rng: random.Random) -> tuple[Types, dict[str, Any]]:
    """Inputs and attributes of a call with a few changes."""
    types, schema = list(call.inputs), all_schemas()[call.op]
    attributes = {name: list(v) if isinstance(v, tuple) else v for name, v in call.attributes.items()}
    for _ in range(rng.randint(0, 2)):
        which = rng.random()
        if types and which < 0.4:
            resized(types, rng)
        elif types and which < 0.6:
            revalued(types, rng)
        elif len(types) > schema.inputs[0] and which < 0.7:
            types[rng.randrange(schema.inputs[0], len(types))] = None
        elif schema.attributes:
            name = rng.choice(sorted(schema.attributes))
            attributes[name] = drawn(schema.attributes[name], rng)
    return types, attributes


def run_everywhere(
    op: str, types: Types, attributes: Mapping[str, Any], outputs: int, strange: float | None = None
) -> bool:
    """Infer, lower for CUDA and run on the CPU with zeros for integers; whether the call was taken.

    `strange` is the first element of every array of floats.
    """
    schema = all_schemas()[op]
    call = infer(op, "n", types, attributes, outputs)
    if any(out.size > MOST for out in call.outputs):
        return True
    if schema.flops is not None:
        assert schema.flops(call) >= 0
    rng = np.random.default_rng(0)
    arrays = [None if type_ is None else random_array(type_, rng) for type_ in call.inputs]
    for index, (array, type_) in enumerate(zip(arrays, call.inputs, strict=True)):
        if array is not None and type_ is not None and type_.value is None and array.dtype.kind in "iu":
            arrays[index] = np.zeros_like(array)  # an index that is always inside
        elif array is not None and array.dtype.kind == "f" and array.size and strange is not None:
            arrays[index] = array.copy()
            arrays[index].reshape(-1)[0] = strange
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        if not call.exact:
            dynamic_kernel(op)(call)(arrays)
            return True
        cuda_kernel(op)(call)
        results = [np.zeros(out.shape, array_dtype(out.dtype)) for out in call.outputs]
        cpu_kernel(op)(call)([None if i in schema.host_inputs else a for i, a in enumerate(arrays)], results)
    return True


@pytest.mark.parametrize("op", OPS)
def test_no_call_ends_in_a_traceback(op: str) -> None:
    rng, calls, taken = random.Random(op), list(calls_of(op)), 0
    for _ in range(60):
        call = rng.choice(calls)
        types, attributes = bent(call, rng)
        try:
            least, most = all_schemas()[op].outputs
            count = call.output_count if rng.random() < 0.8 else rng.randint(least, min(most, 4))
            taken += run_everywhere(call.op, types, attributes, count, rng.choice(STRANGE))
        except KgrunError:
            continue
    assert taken
