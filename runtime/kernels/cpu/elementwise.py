"""Elementwise operators in numpy: one row each, `function(*operands, out=…, **attributes)`.

Float16, bfloat16 and float8 are computed in float32. An output may be the memory of an input: a function writes `out`
in its last step only. Large arrays are walked in blocks, so that temporaries stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import widened
from kgrun.runtime.kernels.cpu.special import erf

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_BLOCK = 16_384  # elements


def _truncated_quotient(x: Array, y: Array, out: Array) -> None:
    if x.dtype.kind == "f":
        np.divide(x, y, out=out)
        return
    quotient = np.floor_divide(x, y)
    if x.dtype.kind == "i":
        remainder = np.remainder(x, y)
        quotient = quotient + ((remainder != 0) & ((remainder < 0) != (x < 0)))
    np.copyto(out, quotient, casting="unsafe")


def _variadic(function: Callable[[Array, Array], Array]) -> Callable[..., None]:
    def apply(*operands: Array, out: Array) -> None:
        np.copyto(out, reduce(function, operands))

    return apply


def _mean(*operands: Array, out: Array) -> None:
    np.divide(reduce(np.add, operands), len(operands), out=out)


def _mod(x: Array, y: Array, out: Array, fmod: int) -> None:
    (np.fmod if fmod else np.mod)(x, y, out=out)


def _power(x: Array, y: Array, out: Array) -> None:
    if x.dtype.kind == "f":
        np.power(x, y.astype(x.dtype), out=out)
    elif y.dtype.kind == "f":
        np.copyto(out, np.power(x.astype(np.float64), y.astype(np.float64)), casting="unsafe")
    else:
        # Modulo 2^64 the powers of an odd number repeat every 2^62, those of an even one are 0 from the 64th on.
        exponent = np.where(y < 1 << 63, y, y % (1 << 62) + (1 << 62)).astype(np.int64) if y.dtype == np.uint64 else y
        positive = np.power(x.astype(np.int64), np.maximum(exponent, 0).astype(np.int64))
        sign = np.where(exponent & 1, -1, 1)
        negative = np.where(x == 1, 1, np.where(x == -1, sign, 0))
        np.copyto(out, np.where(exponent < 0, negative, positive), casting="unsafe")


def _clip(x: Array, low: Array | None = None, high: Array | None = None, *, out: Array, **bounds: float) -> None:
    least = bounds.get("min") if low is None else low.reshape(())
    most = bounds.get("max") if high is None else high.reshape(())
    if least is not None:
        x = np.maximum(x, np.asarray(least, x.dtype), out=out)
    if most is not None:
        np.minimum(x, np.asarray(most, x.dtype), out=out)
    elif least is None:
        np.copyto(out, x)


def _sigmoid(x: Array, out: Array) -> None:
    work = np.exp(-x)
    work += 1
    np.divide(1, work, out=out)


def _gelu(x: Array, out: Array, approximate: str) -> None:
    if approximate == "tanh":
        work = np.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x)))
    else:
        work = erf(x * x.dtype.type(0.7071067811865476))
    work += 1
    work *= 0.5
    np.multiply(work, x, out=out)


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _chosen(test: Array, yes: Array, no: Array, out: Array) -> None:
    np.copyto(out, np.where(test, yes, no))


def _ramp(x: Array, slope: float, offset: float) -> Array:
    """slope · x + offset, limited to [0, 1]."""
    work: Array = x * x.dtype.type(slope)
    work += x.dtype.type(offset)
    np.maximum(work, 0, out=work)
    np.minimum(work, 1, out=work)
    return work


def _swish(x: Array, out: Array, alpha: float) -> None:
    np.divide(x, 1 + np.exp(-alpha * x), out=out)


def _selu(x: Array, out: Array, alpha: float, gamma: float) -> None:
    np.multiply(gamma, np.where(x <= 0, alpha * np.expm1(x), x), out=out)


def _shrink(x: Array, out: Array, bias: float, lambd: float) -> None:
    wide = x if x.dtype.kind == "f" else x.astype(np.float64)
    result = np.where(wide < -lambd, wide + bias, np.where(wide > lambd, wide - bias, 0))
    np.copyto(out, result, casting="unsafe")


def _is_inf(x: Array, out: Array, detect_negative: int, detect_positive: int) -> None:
    positive, negative = (x > 0) & bool(detect_positive), (x < 0) & bool(detect_negative)
    np.logical_and(np.isinf(x), positive | negative, out=out)


def _shift(x: Array, y: Array, out: Array, direction: str) -> None:
    (np.left_shift if direction == "LEFT" else np.right_shift)(x, y, out=out)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _truncated_quotient,
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Sum": _variadic(np.add),
    "Mean": _mean,
    "Mod": _mod,
    "Pow": _power,
    "Clip": _clip,
    "Neg": np.negative,
    "Abs": np.absolute,
    "Sign": np.sign,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Reciprocal": partial(np.divide, 1),
    "Sqrt": np.sqrt,
    "Exp": np.exp,
    "Log": np.log,
    "Erf": lambda x, out: np.copyto(out, erf(x)),
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Tanh": np.tanh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "Relu": lambda x, out: np.maximum(x, 0, out=out),
    "Sigmoid": _sigmoid,
    "Gelu": _gelu,
    "HardSigmoid": lambda x, out, alpha, beta: np.copyto(out, _ramp(x, alpha, beta)),
    "HardSwish": lambda x, out: np.multiply(x, _ramp(x, 1 / 6, 0.5), out=out),
    "LeakyRelu": lambda x, out, alpha: _chosen(x < 0, alpha * x, x, out),
    "Elu": lambda x, out, alpha: _chosen(x < 0, alpha * np.expm1(x), x, out),
    "Selu": _selu,
    "Celu": lambda x, out, alpha: _chosen(x < 0, alpha * np.expm1(x / alpha), x, out),
    "Swish": _swish,
    "Mish": lambda x, out: np.multiply(x, np.tanh(_softplus(x)), out=out),
    "Softplus": lambda x, out: np.copyto(out, _softplus(x)),
    "Softsign": lambda x, out: np.divide(x, 1 + np.abs(x), out=out),
    "ThresholdedRelu": lambda x, out, alpha: np.copyto(out, np.where(x <= alpha, x.dtype.type(0), x)),
    "Shrink": _shrink,
    "PRelu": lambda x, y, out: _chosen(x < 0, x * y, x, out),
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Not": np.logical_not,
    "IsNaN": np.isnan,
    "IsInf": _is_inf,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "BitwiseNot": np.invert,
    "BitShift": _shift,
    "Where": lambda x, y, z, out: _chosen(x, y, z, out),
}
_MOVES_BITS = frozenset({"Where"})  # no arithmetic: narrow floats stay as they are


@on_cpu(*FUNCTIONS)
def elementwise(call: OpCall) -> HostFunction:
    """Any operator of FUNCTIONS."""
    function = partial(_specialised(call), **call.attributes)
    narrow = call.op not in _MOVES_BITS and any(t and compute_dtype(t.dtype) != t.dtype for t in call.inputs)
    out_narrow = narrow and DTYPES[call.outputs[0].dtype].kind == "float"
    blocked = all(t and t.shape == call.outputs[0].shape for t in call.inputs)
    blocked = blocked and call.outputs[0].size > _BLOCK and (narrow or not isinstance(function.func, np.ufunc))

    def apply(operands: Sequence[Array | None], out: Array) -> None:
        if out.ndim == 0:  # numpy makes scalars of 0-d results, and a scalar cannot be worked on in place
            operands, out = [None if x is None else x.reshape(1) for x in operands], out.reshape(1)
        if narrow:
            operands = [None if x is None else widened(x) for x in operands]
        if out_narrow:
            result = np.empty(out.shape, np.float32)
            function(*operands, out=result)
            np.copyto(out, result, casting="unsafe")
        else:
            function(*operands, out=out)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        out = outputs[0]
        with np.errstate(all="ignore"):
            if not (blocked and out.flags.c_contiguous):
                apply(inputs, out)
                return
            flat, target = [x.reshape(-1) if x is not None else None for x in inputs], out.reshape(-1)
            for start in range(0, target.size, _BLOCK):
                part = slice(start, start + _BLOCK)
                apply([x[part] if x is not None else None for x in flat], target[part])

    return run


def _specialised(call: OpCall) -> Callable[..., Any]:
    """The function of `call`, replaced by a cheaper one for powers known to be 2 and 0.5."""
    if (
        call.op == "Pow"
        and DTYPES[call.input(0).dtype].kind == "float"
        and call.input(0).shape == call.outputs[0].shape
    ):
        exponent = call.input(1).value
        if exponent == (2,):
            return lambda x, y, out: np.multiply(x, x, out=out)
        if exponent == (0.5,):
            return lambda x, y, out: np.sqrt(x, out=out)
    return FUNCTIONS[call.op]


LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57_344.0}


@on_cpu("Cast", "CastLike")
def cast(call: OpCall) -> HostFunction:
    """Conversion: to integers toward zero, to bool by `!= 0`, to narrower floats to nearest even.

    A float outside an integer's range, NaN included, gives an unspecified integer.
    """
    to = call.outputs[0].dtype
    largest = LARGEST.get(to) if call.attributes["saturate"] else None
    narrow = compute_dtype(call.input(0).dtype) != call.input(0).dtype

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x = inputs[0]
        assert x is not None
        with np.errstate(all="ignore"):
            if narrow:
                x = x.astype(np.float32)
            if largest is not None and x.dtype.kind == "f":
                x = np.clip(x, -largest, largest)
            if to == "bool":
                np.not_equal(x, 0, out=outputs[0])
            else:
                np.copyto(outputs[0], x, casting="unsafe")

    return run
