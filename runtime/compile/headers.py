"""Where NVRTC finds headers, the few host headers it lacks, and a digest of what a source includes."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

# NVRTC has no C library, yet most CUDA files include a header or two of it, often for the host half they
# keep beside the kernel. These stand-ins declare what device code can use and are otherwise empty.
_STDINT = """#pragma once
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t; typedef long long intptr_t; typedef unsigned long long uintptr_t;
"""
_FLOAT = """#pragma once
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
"""
_LIMITS = """#pragma once
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295U
#define LLONG_MAX 9223372036854775807LL
#define LLONG_MIN (-9223372036854775807LL - 1)
#define ULLONG_MAX 18446744073709551615ULL
"""
_MATH = """#pragma once
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000LL)
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LN2 0.69314718055994530942
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
"""
_STDINT_STD = '#pragma once\n#include "stdint.h"\nnamespace std { using ::int8_t; using ::int16_t; using ::int32_t; \
using ::int64_t; using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t; }\n'
HOST_HEADERS: dict[str, str] = {
    "stdint.h": _STDINT,
    "inttypes.h": _STDINT,
    "cstdint": _STDINT_STD,
    "float.h": _FLOAT,
    "cfloat": _FLOAT,
    "limits.h": _LIMITS,
    "climits": _LIMITS,
    "math.h": _MATH,
    "cmath": _MATH,
    **dict.fromkeys(
        (
            "stdio.h",
            "cstdio",
            "stdlib.h",
            "cstdlib",
            "string.h",
            "cstring",
            "stddef.h",
            "cstddef",
            "assert.h",
        ),
        "",
    ),
    **dict.fromkeys(("cassert", "stdbool.h", "iostream", "vector", "string", "chrono", "memory", "iomanip"), ""),
}

_INCLUDE = re.compile(rb"^[ \t]*(?:#|%:)[ \t]*(?:/\*.*?\*/[ \t]*)?(?:include(?:_next)?)\b[ \t]*(.*)$", re.MULTILINE)
_NAMED = re.compile(rb"[<\"]([^>\"\n]+)[>\"]")


def toolkit_include_dirs() -> list[Path]:
    """The CUDA headers' folders: the NVIDIA wheels' if installed, else a toolkit's; empty where there is neither.

    A place that also has the compiler's own headers (crt/, which mma.h needs) is preferred to one that lacks them.
    """
    found = [root for root in _toolkit_roots() if (root / "cuda_fp16.h").is_file()]
    if not found:
        return []
    root = next((r for r in found if (r / "crt" / "mma.h").is_file()), found[0])
    return [root, *(path for path in (root / "cccl",) if path.is_dir())]


def _toolkit_roots() -> Iterator[Path]:
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(place).glob("cu[0-9]*/include"), reverse=True)
        yield Path(place) / "cuda_runtime" / "include"
    for variable in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"):
        if value := os.environ.get(variable):
            yield Path(value) / "include"
    yield Path("/usr/local/cuda/include")


def toolkit_identity() -> str:
    """A text that changes when the toolkit's headers do: their place, and size and time of the largest
    ones."""
    words = []
    for root in toolkit_include_dirs()[:1]:
        for name in ("cuda.h", "cuda_fp16.hpp", "cooperative_groups.h"):
            if (root / name).is_file():
                status = (root / name).stat()
                words.append(f"{root / name}:{status.st_size}:{status.st_mtime_ns}")
    return "\n".join(words)


def included_digest(source: str, source_dir: Path | None, include_dirs: Sequence[Path]) -> str | None:
    """A sha256 over every user header that `source` can reach, or None where that cannot be told.

    Headers are looked up as the compiler does: beside the including file, then in `include_dirs` in order.
    A header under a false `#if` counts too (a needless recompile is harmless), a missing one counts as
    missing. An `#include` of a macro could name any file: None, and the caller must not cache.
    """
    digest = hashlib.sha256()
    seen: set[Path] = set()
    pending: list[tuple[bytes, Path | None]] = [(source.encode(), source_dir)]
    while pending:
        text, folder = pending.pop()
        for match in _INCLUDE.finditer(text.replace(b"\\\r\n", b"").replace(b"\\\n", b"")):
            named = _NAMED.match(match.group(1))
            if named is None:
                return None
            name = named.group(1).decode("utf-8", "surrogateescape")
            path = _resolve(name, folder, include_dirs)
            digest.update(f"{name}\0{path}\0".encode("utf-8", "surrogateescape"))
            if path is None or path in seen:
                continue
            seen.add(path)
            content = path.read_bytes()
            digest.update(hashlib.sha256(content).digest())
            pending.append((content, path.parent))
    return digest.hexdigest()


def included_files(source: bytes, source_dir: Path | None, include_dirs: Sequence[Path]) -> list[Path]:
    """The user headers that `source` can reach, in the order in which they are found; an `#include` of a macro is
    passed over."""
    found: dict[Path, None] = {}
    pending: list[tuple[bytes, Path | None]] = [(source, source_dir)]
    while pending:
        text, folder = pending.pop()
        for match in _INCLUDE.finditer(text.replace(b"\\\r\n", b"").replace(b"\\\n", b"")):
            named = _NAMED.match(match.group(1))
            path = _resolve(named.group(1).decode("utf-8", "surrogateescape"), folder, include_dirs) if named else None
            if path is not None and path not in found:
                found[path] = None
                pending.append((path.read_bytes(), path.parent))
    return list(found)


def _resolve(name: str, folder: Path | None, include_dirs: Sequence[Path]) -> Path | None:
    for place in ([folder] if folder else []) + list(include_dirs):
        candidate = place / name
        if candidate.is_file():
            return candidate.resolve()
    return None
