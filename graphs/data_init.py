"""Initial data made from a rule and a seed: the same bytes on every machine, in any order of declaration."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from kgrun.graphs.data_arrays import Array, numpy_dtype
from kgrun.graphs.data_values import FLOAT_MAX, WRITTEN_MAX, element
from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.errors import GraphError, Place, placed
from kgrun.graphs.schema.kinds import is_fill, is_integers, is_range, is_uniform

if TYPE_CHECKING:
    from kgrun.graphs.schema.tensors import Init, IntegersInit, NormalInit, RangeInit, UniformInit

# Elements made at a time: the random numbers are float64, whatever the tensor is.
_CHUNK = 1 << 18


def initial_array(
    init: Init, dtype: str, shape: tuple[int, ...], name: str, seed: int = 0, where: Place | None = None
) -> Array:
    """The array that `init` describes for the tensor `name`.

    Random numbers come from PCG64, seeded with the run's `seed` and with the init's own seed or, without one, a hash
    of the tensor's name. They are drawn in float64 and rounded, so that all float types see the same numbers.

    Raises:
        GraphError: KG378 when the rule does not fit the dtype.
    """
    with placed(where):
        if is_fill(init):
            if isinstance(init.fill, str) and DTYPES[dtype].kind != "float":
                raise _misfit(f"{init.fill!r} is no {dtype} value")
            filling = np.asarray(element(init.fill, dtype, {})).astype(numpy_dtype(dtype))
            return np.full(shape, filling, dtype=filling.dtype)
        if is_range(init):
            return _arange(init, dtype, shape)
        own = init.seed if init.seed is not None else _name_hash(name)
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, own])))
        if is_integers(init):
            return _integers(init, dtype, shape, generator)
        if DTYPES[dtype].kind != "float":
            rule = "uniform" if is_uniform(init) else "normal"
            raise _misfit(f"{rule} makes floats, the tensor is {dtype}", "use `integers` or `fill`")
        if is_uniform(init):
            return _uniform(init, dtype, shape, generator)
        return _normal(init, dtype, shape, generator)


def _name_hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode("utf-8")).digest()[:8], "little")


def _misfit(message: str, help: str | None = None) -> GraphError:
    return GraphError(message, code="KG378", help=help)


def _chunked(shape: tuple[int, ...], dtype: str, draw: Callable[[int], Array]) -> Array:
    """Fill an array in row-major order with what `draw(count)` gives."""
    array = np.empty(prod(shape), numpy_dtype(dtype))
    for start in range(0, array.size, _CHUNK):
        part = array[start : start + _CHUNK]
        part[...] = draw(part.size).astype(array.dtype)
    return array.reshape(shape)


def _check_floats(dtype: str, *values: float) -> None:
    for value in values:
        if abs(value) > WRITTEN_MAX[dtype]:
            raise _misfit(f"{value} is outside {dtype}: at most {FLOAT_MAX[dtype]}")


def _uniform(init: UniformInit, dtype: str, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    low, high = init.uniform
    _check_floats(dtype, low, high)
    if low > high:
        raise _misfit(f"uniform [{low}, {high}] has its bounds swapped")
    kind = numpy_dtype(dtype)
    top = np.asarray(high, np.float64).astype(kind)
    # The largest number below `high`: rounding to a narrow type may reach `high` itself, which is outside [low, high).
    below = np.nextafter(top, np.asarray(low, np.float64).astype(kind)) if low < high else top

    def draw(count: int) -> Array:
        numbers = (low + (float(high) - low) * generator.random(count)).astype(kind)
        return np.where(numbers >= top, below, numbers)

    return _chunked(shape, dtype, draw)


def _normal(init: NormalInit, dtype: str, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    mean, deviation = init.normal
    _check_floats(dtype, mean, deviation)
    if deviation < 0:
        raise _misfit(f"normal has a negative standard deviation {deviation}")
    limit = FLOAT_MAX[dtype]

    def draw(count: int) -> Array:
        with np.errstate(over="ignore"):
            return np.clip(mean + deviation * generator.standard_normal(count), -limit, limit)

    return _chunked(shape, dtype, draw)


def _integers(init: IntegersInit, dtype: str, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    low, high = init.integers
    if low >= high:
        raise _misfit(f"integers [{low}, {high}] is empty: the upper bound is excluded")
    limits = DTYPES[dtype].limits
    if limits is None:
        _check_floats(dtype, low, high - 1)
    elif not limits[0] <= low < high <= limits[1] + 1:
        raise _misfit(f"integers [{low}, {high}] leaves {dtype}: [{limits[0]}, {limits[1]}]")
    wide = np.uint64 if high > 1 << 63 else np.int64
    if wide is np.uint64 and low < 0:
        raise _misfit(f"integers [{low}, {high}] is wider than 64 bits")
    return _chunked(shape, dtype, lambda count: generator.integers(low, high, size=count, dtype=wide))


def _arange(init: RangeInit, dtype: str, shape: tuple[int, ...]) -> Array:
    start, step = init.arange
    count = prod(shape)
    last = start + step * max(0, count - 1)
    limits = DTYPES[dtype].limits
    if limits is None:
        _check_floats(dtype, start, last)
    elif isinstance(start, float) or isinstance(step, float):
        raise _misfit(f"arange makes floats, the tensor is {dtype}", "write the start and the step as integers")
    elif not all(limits[0] <= value <= limits[1] for value in (start, last)):
        raise _misfit(f"arange runs from {start} to {last}, outside {dtype}: [{limits[0]}, {limits[1]}]")
    array = np.empty(count, numpy_dtype(dtype))
    for first in range(0, count, _CHUNK):
        index = np.arange(first, min(first + _CHUNK, count), dtype=np.float64 if limits is None else np.uint64)
        array[first : first + _CHUNK] = _progression(start, step, index, limits)
    return array.reshape(shape)


def _progression(start: float, step: float, index: Array, limits: tuple[int, int] | None) -> Array:
    if limits is None:
        floats: Array = float(start) + float(step) * index
        return floats
    # Modulo 2**64: exact, since first and last are in range.
    steps: Array = index * np.uint64(int(step) % (1 << 64)) + np.uint64(int(start) % (1 << 64))
    return steps if limits[0] == 0 else steps.view(np.int64)
