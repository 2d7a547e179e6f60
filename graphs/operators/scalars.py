"""Scalar arithmetic with ONNX's semantics, once in Python for known values and once in CUDA C for device kernels."""

from __future__ import annotations

import math

from kgrun.graphs.operators.base import Scalar

# max and min that keep a NaN, as numpy's maximum and minimum do.
EXTREMES = """
template <typename T> __device__ __forceinline__ T kg_max(T a, T b) { return (a != a || a > b) ? a : b; }
template <typename T> __device__ __forceinline__ T kg_min(T a, T b) { return (a != a || a < b) ? a : b; }
"""

# The remainder with the divisor's sign.
MODULO = """
template <typename T> __device__ __forceinline__ T kg_int_mod(T a, T b) {
    T r = a % b;
    return (r != T(0) && ((r < T(0)) != (b < T(0)))) ? T(r + b) : r;
}
template <typename T> __device__ __forceinline__ T kg_float_mod(T a, T b) {
    T r = fmod(a, b);
    if (r == T(0)) return copysign(r, b);
    return ((r < T(0)) != (b < T(0))) ? r + b : r;
}
"""

# Integer power by squaring, wrapping; a negative exponent gives 1 / base^n rounded toward zero (0 for base 0).
POWER = """
template <typename T, typename E> __device__ __forceinline__ T kg_power(T base, E exponent) {
    if (exponent < E(0)) return base == T(1) ? T(1) : base == T(-1) ? ((exponent & E(1)) ? T(-1) : T(1)) : T(0);
    unsigned long long result = 1, square = (unsigned long long)(long long)base;
    for (E left = exponent; left > E(0); left >>= 1, square *= square)
        if (left & E(1)) result *= square;
    return T(result);
}
"""

# Shift counts outside [0, bits) leave what the sign bit alone gives.
SHIFTS = """
template <typename T> __device__ __forceinline__ T kg_shift_left(T a, T b) {
    return (b < T(0) || (unsigned long long)b >= 8 * sizeof(T)) ? T(0) : T((unsigned long long)a << b);
}
template <typename T> __device__ __forceinline__ T kg_shift_right(T a, T b) {
    return (b < T(0) || (unsigned long long)b >= 8 * sizeof(T)) ? (a < T(0) ? T(-1) : T(0)) : T(a >> b);
}
"""


def divide(x: Scalar, y: Scalar) -> Scalar:
    """x / y, rounded toward zero for integers; ZeroDivisionError for y = 0."""
    if isinstance(x, float) or isinstance(y, float):
        return x / y
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def modulo(x: Scalar, y: Scalar) -> Scalar:
    """The remainder with the divisor's sign."""
    return x % y


def c_remainder(x: Scalar, y: Scalar) -> Scalar:
    """The remainder with the dividend's sign."""
    if isinstance(x, float) or isinstance(y, float):
        return math.fmod(x, y)
    remainder = abs(x) % abs(y)
    return remainder if x >= 0 else -remainder


def power(x: Scalar, y: Scalar) -> Scalar:
    """x to the y; ArithmeticError where plain Python cannot follow (huge results, roots of negative numbers)."""
    if not isinstance(x, float) and not isinstance(y, float) and (y < 0 or abs(y) > 64):
        raise ArithmeticError("left to the device")
    result = x**y
    if isinstance(result, complex):
        raise ArithmeticError("a root of a negative number")
    return result if isinstance(x, float) else int(result)


def largest(*items: Scalar) -> Scalar:
    """The largest item; NaN when one is NaN."""
    return next((item for item in items if item != item), max(items))


def least(*items: Scalar) -> Scalar:
    """The smallest item; NaN when one is NaN."""
    return next((item for item in items if item != item), min(items))


def floor(x: Scalar) -> Scalar:
    """x rounded down; infinities and NaN stay."""
    return float(math.floor(x)) if math.isfinite(x) else x


def ceil(x: Scalar) -> Scalar:
    """x rounded up; infinities and NaN stay."""
    return float(math.ceil(x)) if math.isfinite(x) else x


def square_root(x: Scalar) -> Scalar:
    """The root of x; ValueError for a negative x."""
    return math.sqrt(x)
