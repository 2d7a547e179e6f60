"""A kernel's parameters: from its C++ type, from PTX, or from a cubin's `.nv.info`; and a cubin's resources."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kgrun.graphs.errors import CompileError, did_you_mean
from kgrun.runtime.compile import mangling
from kgrun.runtime.compile.nvrtc import compile_cuda
from kgrun.runtime.compile.ptx.parse import parse_module

ParamKind = Literal["pointer", "scalar", "struct"]

# A variable template whose instance's name spells the kernel's type: the compiler itself tells the signature.
PROBE = '\n#line 1 "kgrun-signature-probe"\ntemplate <class F> __device__ int kgrun_signature = 0;\n'


@dataclass(frozen=True)
class ParamInfo:
    """One parameter; size and offset in bytes of the packed arguments.

    `type_name` is C++ where the source was seen (`float const*`), else empty. `const` says whether a pointer's target
    is const (an input), None where that is not known.
    """

    kind: ParamKind
    size: int
    offset: int
    type_name: str
    const: bool | None


@dataclass(frozen=True)
class KernelSignature:
    """A kernel's symbol, its parameters, and the limits it was compiled with."""

    symbol: str
    params: list[ParamInfo]
    static_shared: int
    max_threads: int | None
    registers: int | None


def signatures_of_source(
    source: str,
    entries: Sequence[str],
    *,
    name: str,
    arch: str = "sm_80",
    options: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
) -> dict[str, KernelSignature]:
    """The exact signatures of `entries`, function names or template instances such as `scale<float, 4>`.

    Raises `CompileError` where the source or an entry does not compile, or an entry names several functions.
    """
    compiled = compile_cuda(
        source + PROBE,
        name=name,
        arch=arch,
        options=options,
        include_dirs=include_dirs,
        name_expressions=[*entries, *map(_probe, entries)],
    )
    found = {}
    for entry in entries:
        plain = signature_of_cubin(compiled.image, compiled.lowered_names[entry], name=name)
        found[entry] = replace(plain, params=_with_types(plain.params, compiled.lowered_names[_probe(entry)]))
    return found


def _probe(entry: str) -> str:
    """The name expression whose symbol, in a source that ends with `PROBE`, spells the type of `entry`."""
    return f"&kgrun_signature<decltype({entry})>"


def _with_types(params: list[ParamInfo], probe_symbol: str) -> list[ParamInfo]:
    """Parameters with the C++ types that the symbol of a probe spells; as they were where it cannot be read."""
    types = mangling.function_parameters(probe_symbol)
    if types is None or len(types) != len(params):
        return params
    return [_named(param, kind) for param, kind in zip(params, types, strict=True)]


def signature_of_ptx(ptx: str, symbol: str, *, name: str) -> KernelSignature:
    """What PTX says: sizes and offsets; 8-byte scalars are taken for pointers."""
    module = parse_module(ptx, name)
    if symbol not in module.entries:
        raise _no_kernel(symbol, name, module.entries)
    function = module.signatures[symbol]
    module.function(symbol)
    params = []
    for param in function.params:
        kind: ParamKind = "struct" if param.is_array else "pointer" if param.is_pointer_guess else "scalar"
        params.append(ParamInfo(kind, param.size, param.offset, "", None))
    shared = sum(variable.size for variable in function.variables.values() if variable.space == "shared")
    return KernelSignature(symbol, params, shared, function.max_threads, None)


def signature_of_cubin(image: bytes, symbol: str, *, name: str) -> KernelSignature:
    """What a cubin says: sizes, offsets, registers, static shared memory, the launch bound."""
    kernels = cubin_kernels(image, name)
    if symbol not in kernels:
        raise _no_kernel(symbol, name, list(kernels))
    return kernels[symbol]


def cubin_kernels(image: bytes, name: str) -> dict[str, KernelSignature]:
    """Every kernel of a cubin; raises `CompileError` where `image` is none."""
    try:
        sections = _sections(image)
    except (struct.error, IndexError, ValueError) as error:
        raise CompileError(f"{name} is no cubin: {error}", code="KG505", where=name) from error
    contents = dict(sections)
    registers = _registers(contents)
    reserved = _SYSTEM_SHARED if ".nv.shared.reserved.0" in contents else 0
    found = {}
    for section in contents:
        if section.startswith(".text."):
            symbol = section.removeprefix(".text.")
            params, threads = _attributes(contents.get(f".nv.info.{symbol}", b""))
            shared = max(0, _section_size(image, f".nv.shared.{symbol}") - reserved)
            found[symbol] = KernelSignature(symbol, params, shared, threads, registers.get(symbol))
    return found


def _no_kernel(symbol: str, name: str, known: Sequence[str]) -> CompileError:
    hint = did_you_mean(symbol, known) or f"it has {', '.join(known) or 'no kernel'}"
    return CompileError(f"no kernel {symbol!r} in {name}", code="KG504", where=name, help=hint)


def _named(param: ParamInfo, kind: mangling.CppType) -> ParamInfo:
    if kind.is_pointer:
        return replace(param, kind="pointer", type_name=kind.text, const=kind.target_is_const)
    return replace(param, kind="scalar" if kind.is_builtin else "struct", type_name=kind.text, const=None)


_SECTION = struct.Struct("<IIQQQQIIQQ")
_NO_BITS = 8


def _headers(image: bytes) -> list[tuple[str, tuple[int, ...]]]:
    """(name, section header) of an ELF64 file."""
    if image[:4] != b"\x7fELF" or image[4] != 2:
        raise ValueError("not an ELF64 file")
    (offset,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    rows = [_SECTION.unpack_from(image, offset + size * number) for number in range(count)]
    text = rows[names][4]
    return [(image[text + row[0] : image.index(b"\0", text + row[0])].decode(), row) for row in rows]


def _sections(image: bytes) -> list[tuple[str, bytes]]:
    """(name, content) of each section."""
    return [(name, b"" if row[1] == _NO_BITS else image[row[4] : row[4] + row[5]]) for name, row in _headers(image)]


def _registers(contents: dict[str, bytes]) -> dict[str, int]:
    """Registers a thread by kernel: `.nv.info` has (symbol index, count) pairs."""
    symbols, names, data = (contents.get(name, b"") for name in (".symtab", ".strtab", ".nv.info"))
    found = {}
    for kind, value in _records(data):
        if kind == _REGISTER_COUNT and len(value) >= 8:
            index, count = struct.unpack_from("<II", value)
            (start,) = struct.unpack_from("<I", symbols, 24 * index)
            found[names[start : names.index(b"\0", start)].decode()] = count
    return found


def _section_size(image: bytes, name: str) -> int:
    return next((row[5] for title, row in _headers(image) if title == name), 0)


# EIATTR_KPARAM_INFO, EIATTR_MAX_THREADS, EIATTR_REGCOUNT
_PARAMETER, _MAX_THREADS, _REGISTER_COUNT = 0x17, 0x05, 0x2F
_SIZED = 4
_SYSTEM_SHARED = 1024  # from sm_90 on, the system's own part is counted in a kernel's section


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(kind, value) of each record of a `.nv.info` section that has a sized value."""
    place = 0
    while place + 4 <= len(data):
        form, kind, size = struct.unpack_from("<BBH", data, place)
        place += 4
        if form == _SIZED:
            yield kind, data[place : place + size]
            place += size


def _attributes(data: bytes) -> tuple[list[ParamInfo], int | None]:
    """Parameters and launch bound out of a `.nv.info.KERNEL` section."""
    params: dict[int, ParamInfo] = {}
    threads = None
    for kind, value in _records(data):
        if kind == _PARAMETER and len(value) >= 12:
            _, ordinal, offset, packed = struct.unpack_from("<IHHI", value)
            length = packed >> 18
            guess: ParamKind = "pointer" if length == 8 else "scalar" if length in (1, 2, 4) else "struct"
            params[ordinal] = ParamInfo(guess, length, offset, "", None)
        elif kind == _MAX_THREADS and len(value) >= 12:
            x, y, z = struct.unpack_from("<III", value)
            threads = x * y * z
    return [params[ordinal] for ordinal in sorted(params)], threads
