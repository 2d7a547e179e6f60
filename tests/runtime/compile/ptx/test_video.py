"""SIMD within a word against CUDA's definitions: part by part in Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import DeviceUnavailable
from tests.runtime.compile.ptx.harness import launch, rng

pytest.importorskip("llvmlite")
pytest.importorskip("cuda.bindings")

COUNT = 4096
EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0x7F80FF01, 0x807F00FE, 0x80808080, 0x7F7F7F7F, 0xFFFFFFFF)
Fold = Callable[[list[int]], int]


def words(seed: int) -> Any:
    """Random words, and before them every pair of edges (`seed` 1 and 2 run over them at other speeds)."""
    pairs = [(a, b) for a in EDGES for b in EDGES]
    known = np.array([pair[seed - 1] for pair in pairs], np.uint32)
    return np.concatenate([known, rng(seed).integers(0, 1 << 32, COUNT - len(known), dtype=np.uint32)])


def parts(word: int, count: int, signed: bool) -> list[int]:
    data = int(word).to_bytes(4, "little")
    size = 4 // count
    return [int.from_bytes(data[at : at + size], "little", signed=signed) for at in range(0, 4, size)]


def joined(values: list[int]) -> int:
    """The low bits of each, side by side."""
    bits = 32 // len(values)
    return sum((value & (1 << bits) - 1) << bits * place for place, value in enumerate(values))


def clamped(signed: bool) -> Fold:
    def fold(values: list[int]) -> int:
        bits = 32 // len(values)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return joined([min(max(value, low), high) for value in values])

    return fold


def run(statement: str) -> Any:
    source = 'extern "C" __global__ void k(const unsigned* x, const unsigned* y, unsigned* o) {\n'
    source += (
        f"  int i = blockIdx.x * 128 + threadIdx.x; unsigned a = x[i], b = y[i], d;\n  {statement}\n  o[i] = d;\n}}\n"
    )
    o = np.zeros(COUNT, np.uint32)
    assert launch(source, [words(1), words(2), o], grid=COUNT // 128, block=128).faults == []
    return o


def check(statement: str, count: int, signs: tuple[bool, bool], one: Callable[[int, int], int], fold: Fold) -> None:
    want = [
        fold([one(*each) for each in zip(parts(a, count, signs[0]), parts(b, count, signs[1]), strict=True)])
        for a, b in zip(words(1), words(2), strict=True)
    ]
    np.testing.assert_array_equal(run(statement), np.array(want, np.int64).astype(np.uint32))


def difference(a: int, b: int) -> int:
    return abs(a - b)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("sign", ["u", "s"])
def test_absolute_differences_and_their_sums(sign: str, count: int) -> None:
    signs = (sign == "s",) * 2
    check(f"d = __vabsdiff{sign}{count}(a, b);", count, signs, difference, joined)
    check(f"d = __vsad{sign}{count}(a, b);", count, signs, difference, sum)


OPERATIONS = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vmin": min,
    "vmax": max,
    "vabsdiff": difference,
}


@pytest.mark.parametrize("types", ["u32.u32.u32", "s32.s32.s32", "s32.u32.s32", "u32.s32.u32"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic_part_by_part(name: str, types: str) -> None:
    result, *signs = (word == "s32" for word in types.split("."))
    for count in (2, 4):
        for ending, fold in (("", joined), (".sat", clamped(result)), (".add", lambda found: 7 + sum(found))):
            statement = f'asm("{name}{count}.{types}{ending} %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(7));'
            check(statement, count, (signs[0], signs[1]), OPERATIONS[name], fold)


@pytest.mark.parametrize("word", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_part_by_part(word: str) -> None:
    for count in (2, 4):
        for sign in ("u32", "s32"):
            for ending, fold in (("", joined), (".add", sum)):
                name = f"vset{count}.{sign}.{sign}.{word}{ending}"
                statement = f'asm("{name} %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(0));'
                one = {"eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__}
                check(statement, count, (sign == "s32",) * 2, one.get(word, int.__ge__), fold)


@pytest.mark.parametrize("text", ["vadd4.u32.u32.u32 %0.b10, %1, %2, %1", "vavrg4.s32.s32.s32 %0, %1, %2, %1"])
def test_what_is_left_says_which_operation(text: str) -> None:
    with pytest.raises(DeviceUnavailable, match=text.partition(" ")[0]):
        run(f'asm("{text};" : "=r"(d) : "r"(a), "r"(b));')
