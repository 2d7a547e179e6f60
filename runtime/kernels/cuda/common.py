"""What every generated CUDA kernel shares: element types and their conversions, packed arguments, launch shapes."""

from __future__ import annotations

import importlib.util
import os
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import resources
from math import prod
from pathlib import Path

from kgrun.graphs.bound import Dim3
from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand
from kgrun.runtime.program import KernelCode, Value

BLOCK = 256
MOST_BLOCKS = 1 << 20  # kernels loop over the grid, so that no size outgrows it
Arguments = tuple[Operand | Value | None, ...]
_INDEX_32 = 2**31 - 1
_HEADERS = {"float16": "cuda_fp16.h", "bfloat16": "cuda_bf16.h"}
_HEADERS |= dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), "cuda_fp8.h")

# kg_to<O>(v): v as an O. Halves and float8 are reached from float or double alone, integers go by float.
_CONVERT = """
template <class O> struct KgTo { template <class I> static __device__ __forceinline__ O from(I v) { return O(v); } };
template <class O, class I> __device__ __forceinline__ O kg_to(I v) { return KgTo<O>::from(v); }
"""
_CONVERT_TO = {
    "float16": ("__half", "__float2half_rn(float(v))", "__double2half(v)"),
    "bfloat16": ("__nv_bfloat16", "__float2bfloat16_rn(float(v))", "__double2bfloat16(v)"),
    "float8_e4m3fn": ("__nv_fp8_e4m3", "__nv_fp8_e4m3(float(v))", "__nv_fp8_e4m3(v)"),
    "float8_e5m2": ("__nv_fp8_e5m2", "__nv_fp8_e5m2(float(v))", "__nv_fp8_e5m2(v)"),
}


def library_installed(switch: str, bindings: str, wheels: str, system: str) -> bool:
    """Whether a vendor's library is to be had.

    Args:
        switch: variable of the environment that turns it off with 0.
        bindings: the package that calls it.
        wheels, system: patterns of its file, in NVIDIA's wheels and in the system's folders.
    """
    if os.environ.get(switch) == "0" or importlib.util.find_spec(bindings) is None:
        return False
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found = any(next(place.glob(wheels), None) for place in places)
    return found or next(Path("/").glob(system), None) is not None


def c_type(dtype: str) -> str:
    """The CUDA C type that elements of `dtype` are stored in."""
    return DTYPES[dtype].c_type


def compute_type(dtype: str) -> str:
    """The CUDA C type that elements of `dtype` are computed in."""
    return c_type(compute_dtype(dtype))


def prelude(dtypes: Iterable[str]) -> str:
    """Headers and conversions for the element types that a source uses; each header costs compile time."""
    used = sorted(set(dtypes))
    lines = [f"#include <{header}>" for header in sorted({_HEADERS[d] for d in used if d in _HEADERS})]
    lines.append(_CONVERT)
    for dtype in used:
        if dtype in _CONVERT_TO:
            name, single, double = _CONVERT_TO[dtype]
            lines.append(
                f"template <> struct KgTo<{name}> {{\n"
                f"  template <class I> static __device__ __forceinline__ {name} from(I v) {{ return {single}; }}\n"
                f"  static __device__ __forceinline__ {name} from(double v) {{ return {double}; }}\n"
                f"  static __device__ __forceinline__ {name} from({name} v) {{ return v; }}\n}};"
            )
    return "\n".join(lines) + "\n"


@lru_cache
def cuda_file(name: str) -> str:
    """The text of a CUDA source file of this package."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def code(entry: str, text: str, options: tuple[str, ...] = ()) -> KernelCode:
    """A generated source with its one kernel, and options of its compilation."""
    return KernelCode(text, None, "cuda", f"kgrun:{entry}.cu", entry, options)


def integers(values: Sequence[int]) -> Value:
    """64-bit integers side by side, as a struct of `long long`."""
    return Value(struct.pack(f"<{len(values)}q", *values), 8)


def int64(value: int) -> Value:
    """A `long long` argument."""
    return integers((value,))


def number(value: float, dtype: str) -> Value:
    """`value` as an argument of the compute type of `dtype`, floats only."""
    wide = compute_dtype(dtype) == "float64"
    return Value(struct.pack("<d" if wide else "<f", value), 8 if wide else 4)


def index_type(extents: Iterable[int]) -> str:
    """The C type for indices and offsets whose magnitudes are at most `extents`: 32 bits where they suffice."""
    return "int" if all(abs(extent) <= _INDEX_32 - BLOCK * 16 for extent in extents) else "long long"


def blocks_for(threads: int, block: int = BLOCK) -> Dim3:
    """A grid of at least `threads` threads, capped: kernels loop."""
    return (max(1, min(-(-threads // block), MOST_BLOCKS)), 1, 1)


def launch(
    kernel: KernelCode, args: Sequence[Operand | Value | None], threads: int, *, block: int = BLOCK, shared: int = 0
) -> KernelCall:
    """A one-dimensional launch of at least `threads` threads."""
    return KernelCall(kernel, tuple(args), blocks_for(threads, block), (block, 1, 1), shared)


def source_input(index: int) -> Operand:
    """Input `index`."""
    return Operand("input", index)


def target(index: int = 0) -> Operand:
    """Output `index`."""
    return Operand("output", index)


def joined(*parts: Lowered) -> Lowered:
    """The work of `parts` one after the other; each numbers its workspaces behind those of the parts before it."""
    return Lowered(tuple(w for part in parts for w in part.work), tuple(n for part in parts for n in part.workspace))


def collapse(shape: Sequence[int], *strides: Sequence[int]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """`shape` with neighbouring axes merged where every operand's strides allow it, and axes of size 1 gone.

    Strides are in elements, one sequence an operand, each as long as `shape`. The result has at least one axis.
    """
    sizes: list[int] = []
    kept: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        steps = [operand[axis] for operand in strides]
        if sizes and all(rows[-1] == step * size for rows, step in zip(kept, steps, strict=True)):
            sizes[-1] *= size
            for rows, step in zip(kept, steps, strict=True):
                rows[-1] = step
            continue
        sizes.append(size)
        for rows, step in zip(kept, steps, strict=True):
            rows.append(step)
    if not sizes:
        return (1,), tuple((0,) for _ in strides)
    return tuple(sizes), tuple(tuple(rows) for rows in kept)


def reach(shape: Sequence[int], *strides: Sequence[int]) -> list[int]:
    """The largest index and offsets that walking `shape` touches, for `index_type`."""
    return [prod(shape)] + [
        sum(abs(step) * max(size - 1, 0) for size, step in zip(shape, operand, strict=True)) for operand in strides
    ]
