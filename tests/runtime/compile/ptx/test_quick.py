"""The quick pass of a checked launch: what it may not miss, what it must settle alone, that it leaves no trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.runtime.compile.ptx import quick_launch, runtime
from kgrun.runtime.compile.ptx.launch import BufferInfo
from kgrun.runtime.compile.ptx.lower import lower_kernel
from kgrun.runtime.compile.ptx.module import QUICK, PtxKernel
from tests.runtime.compile.ptx.corpus import CASES
from tests.runtime.compile.ptx.harness import ALL_CHECKS, Case, check_case, compiled, floats, ints, launch, pack

pytest.importorskip("llvmlite")
pytest.importorskip("cuda.bindings")


def kernel(params: str, *lines: str, head: str = "") -> str:
    body = "\n  ".join(lines)
    return f'{head}\nextern "C" __global__ void k({params}) {{\n  int t = threadIdx.x, b = blockIdx.x;\n  {body}\n}}\n'


def f32(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


def checked(source: str, checks: frozenset[str] = ALL_CHECKS) -> PtxKernel:
    return compiled(source, (), checks).kernel("k")


def faults_of(source: str, args: list[Any], **how: Any) -> list[tuple[str, int]]:
    return [(fault.kind, fault.line) for fault in launch(source, args, checks=ALL_CHECKS, **how).faults]


def test_a_kernel_that_the_quick_pass_cannot_clear_goes_to_the_exact_one_from_then_on() -> None:
    case = next(case for case in CASES if case.name == "last block reduces")
    source = case.source.replace("\n", "\n\n", 1)  # a module of its own
    for _ in range(2):
        check_case(Case(**{**vars(case), "source": source}), checks=ALL_CHECKS)
    assert checked(source)._doubtful


RACES = {
    "two blocks far apart write one word": (
        kernel("const float* a, float* o", "int i = b * 256 + t;", "o[i & 8191] = a[i];"),
        lambda: [floats(16384), f32(16384)],
        {"grid": 64, "block": 256},
        ("block-race", 5),
    ),
    "a block reads what one far away writes": (
        kernel("float* o", "int i = b * 256 + t;", "o[i] = i + o[16383 - i];"),
        lambda: [floats(16384)],
        {"grid": 64, "block": 256},
        ("block-race", 5),
    ),
    "neighbours in place": (
        kernel("float* o", "float v = t < 63 ? o[t + 1] : 0.f;", "o[t] = v + 1;"),
        lambda: [floats(64)],
        {"block": 64},
        ("race", 5),
    ),
    "two threads write one word of many": (
        kernel("float* o", "o[t == 37 ? 5 : t] = t;"),
        lambda: [floats(64)],
        {"block": 64},
        ("race", 4),
    ),
    "a vector store over a neighbour's": (
        kernel("float4* o", "((float*)o)[4 * t + 3] = 1;", "if (t) o[t - 1] = make_float4(t, 2, 3, 4);"),
        lambda: [f32(4 * 64)],
        {"block": 64},
        ("race", 5),
    ),
    "bytes beside each other are apart, the same are not": (
        kernel("unsigned char* o", "o[t] = t;", "o[256 + 4 * t] = t;", "o[256 + 4 * (t ^ (t == 9))] = t + 1;"),
        lambda: [np.zeros(512, np.uint8)],
        {"block": 64},
        ("race", 6),
    ),
    "another warp, although warps have synchronised": (
        kernel(
            "const float* a, float* o",
            "__shared__ float s[64];",
            "s[t] = a[t];",
            "float v = __shfl_xor_sync(~0u, a[t], 1);",
            "o[t] = s[63 - t] + v;",
        ),
        lambda: [floats(64), f32(64)],
        {"block": 64},
        ("race", 7),
    ),
    "a plain write beside atomics": (
        kernel("const int* a, int* o", "atomicAdd(o + (a[t] & 7), 1);", "if (t == 40) o[3] = 0;"),
        lambda: [ints(64), np.zeros(8, np.int32)],
        {"block": 64},
        ("race", 5),
    ),
    "doubles": (
        kernel("double* o", "o[t >> 1] = t;"),
        lambda: [np.zeros(32)],
        {"block": 64},
        ("race", 4),
    ),
}


@pytest.mark.parametrize("name", RACES)
def test_races_over_many_blocks_and_warps(name: str) -> None:
    source, args, how, want = RACES[name]
    for threads in (1, 2):
        found = faults_of(source, args(), threads=threads, **how)
        assert any(kind == want[0] for kind, _ in found), found
        assert want in found or want[0] == "race", found


def test_reading_before_the_own_write_is_uninitialised() -> None:
    source = kernel(
        "const float* a, float* o", "__shared__ float s[64];", "s[t] += a[t];", "__syncthreads();", "o[t] = s[63 - t];"
    )
    assert ("uninitialised", 5) in faults_of(source, [floats(64), f32(64)], block=64)
    source = kernel("const float* a, float* o", "o[t] += a[t];")
    assert faults_of(source, [floats(64), f32(64)], block=64, outputs=(1,)) == [("uninitialised", 4)]


def test_shared_memory_of_an_earlier_block_does_not_count_as_written() -> None:
    source = kernel(
        "const float* a, float* o",
        "__shared__ float s[64];",
        "if (b == 0) s[t] = a[t];",
        "__syncthreads();",
        "o[b * 64 + t] = s[63 - t];",
    )
    assert faults_of(source, [floats(64), f32(640)], grid=10, block=64) == [("uninitialised", 7)]


def test_memory_is_as_before_when_the_exact_pass_begins() -> None:
    source = kernel(
        "float* o, int* n", "o[b * 32 + t] *= 2;", "if (t == 0) n[b] += b;", "o[b * 32 + t + (b == 7 && t == 31)] += 1;"
    )
    o, n = floats(256), np.zeros(8, np.int32)
    before = o.copy()
    found = launch(source, [o, n], grid=8, checks=ALL_CHECKS).faults
    assert [(fault.kind, fault.line, fault.count) for fault in found] == 2 * [("out-of-bounds", 6, 1)]
    want = before * 2 + 1
    want[255] = before[255] * 2
    np.testing.assert_array_equal(o, want)
    np.testing.assert_array_equal(n, np.arange(8))


@pytest.mark.parametrize("words", [2, 4])
def test_a_vector_store_must_lie_where_its_whole_size_divides_the_address(words: int) -> None:
    value = f"make_float{words}({', '.join('1234'[:words])})"
    source = kernel("float* o, int n", f"*(float{words}*)(o + {words} * t + n) = {value};")
    o = np.zeros(68 + 4 * words, np.float32)
    o = o[-(o.ctypes.data // 4) % 4 :][: 64 + 4]
    assert faults_of(source, [o, np.int32(0)], block=16) == []
    assert faults_of(source, [o, np.int32(1)], block=16) == [("misaligned", 4)]


def test_what_a_suspected_launch_printed_is_said_once() -> None:
    source = kernel("int* o", 'printf("%d ", t);', "o[t & 1] = t;")
    result = launch(source, [np.zeros(2, np.int32)], block=4, checks=ALL_CHECKS)
    assert result.printf_text == "0 1 2 3 "
    assert result.faults


def test_another_buffer_hit_through_the_wrong_argument_is_seen() -> None:
    source = kernel("float* a, long long away, float* o", "o[t] = t;", "a[away + 63 - t] = 1;")
    memory = f32(4096)
    a, o = memory[:64], memory[1024:1088]
    assert ("race", 5) in faults_of(source, [a, np.int64(1024), o], block=64)


def test_reads_of_an_input_that_is_also_written_beside_stores_through_loaded_pointers() -> None:
    source = kernel(
        "const float* a, float** ptr, int n", "float v = a[t];", "ptr[0][t] = v;", "if (t < n) ((float*)a)[t] = v + 1;"
    )
    a, made = floats(64), f32(64)
    pointers = np.array([made.ctypes.data], np.int64)
    module = checked(source).module
    buffers = [
        BufferInfo("a", a.ctypes.data, a.nbytes, readonly=True),
        BufferInfo("ptr", pointers.ctypes.data, 8, readonly=True),
        BufferInfo("made", made.ctypes.data, made.nbytes),
    ]
    for n, kinds in ((0, set()), (64, {"read-only-write"})):
        args = pack([a, pointers, np.int32(n)])
        result = module.kernel("k").launch((1, 1, 1), (64, 1, 1), 0, args, buffers=buffers)
        assert {fault.kind for fault in result.faults} == kinds
    np.testing.assert_array_equal(made, a)


def test_time_that_runs_out_begins_anew() -> None:
    turns = kernel("int* o, int n", "for (int i = 0; i < n; i++) { if (t == 0) o[b] += i; __syncthreads(); }")
    o = np.zeros(60, np.int32)
    assert launch(turns, [o, np.int32(40_000)], grid=60, block=2, checks=ALL_CHECKS, threads=1).faults == []
    assert o.tolist() == [40_000 * 39_999 // 2] * 60
    shared = kernel("int* o, int n", "for (int i = 0; i < n; i++) __syncthreads();", "o[b & 31] = b;")
    assert ("block-race", 5) in faults_of(shared, [o, np.int32(40_000)], grid=60, block=1, threads=1)


def test_stamps_of_earlier_launches_do_not_count() -> None:
    source = kernel("float* o, int n", "o[(b * 64 + t + n) % 1024] = b;")
    o = f32(1024)
    for n in range(5):
        assert faults_of(source, [o, np.int32(64 * n)], grid=16, block=64) == []
    quick_launch._free.clear()
    assert faults_of(source, [o, np.int32(0)], grid=17, block=64) == [("block-race", 4)]


def test_bounds_alone_keep_no_stamps() -> None:
    bounds = frozenset(("bounds",))
    source = kernel("float* o", "o[t / 2] = t;")
    assert launch(source, [f32(32)], block=64, checks=bounds).faults == []
    assert {mode for mode, _ in checked(source, bounds)._compiled} == {QUICK}


@pytest.mark.parametrize("filled", [64, 63])
def test_many_reads_of_shared_memory_look_for_what_nobody_wrote(filled: int) -> None:
    source = kernel(
        "const float* a, float* o",
        "__shared__ float s[64];",
        f"if (t < {filled}) s[t] = a[t];",
        "__syncthreads();",
        "float v = 0;",
        "#pragma unroll",
        "for (int i = 0; i < 64; i++) v += s[i];",
        "o[b * 64 + t] = v;",
    )
    found = faults_of(source, [floats(64), f32(640)], grid=10, block=64)
    assert found == ([] if filled == 64 else [("uninitialised", 9)])
    assert "kg_plain1" in lowered_text(source)


def lowered_text(source: str) -> str:
    """The quick pass's code of a kernel."""
    module = compiled(source, (), ALL_CHECKS)
    made = module.kernel("k")
    return lower_kernel(
        module.parsed, "k", runtime=runtime.module(), addresses=module.addresses, shared=made._offsets,
        checks=ALL_CHECKS, looped=True, sizes=made._sizes,
    ).text  # fmt: skip


def test_states_whose_addresses_depend_on_data_are_tested_as_they_run() -> None:
    straight = kernel("const float* a, float* o", "o[t] = a[63 - t];")
    indirect = kernel("const int* a, float* o", "o[a[t]] = t;")
    branching = kernel("const float* a, float* o", "if (a[t] > 0) o[t] = sqrtf(a[t]) * expf(a[t]);")
    assert ["kg_plain0" in lowered_text(source) for source in (straight, indirect, branching)] == [True, False, False]
