"""Every kernel of a graph compiled for one architecture, without a GPU, and its launches checked against the result."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from kgrun.graphs.bound import BoundGraph, BoundNode, Warning
from kgrun.graphs.errors import CompileError, GraphError, KgrunError
from kgrun.graphs.limits import check_launch, limits_of
from kgrun.graphs.records import dataclass
from kgrun.runtime.checks.arguments import argument_faults, c_type, element_warnings
from kgrun.runtime.checks.places import in_users_files
from kgrun.runtime.compile.signature import (
    KernelSignature,
    signature_of_cubin,
    signature_of_ptx,
    signatures_of_source,
)
from kgrun.runtime.devices.cuda_code import compile_images
from kgrun.runtime.lower.sources import KernelSources
from kgrun.runtime.program import KernelCode

_PTX_TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)(a|f)?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel as compiled; None for what its code does not tell. Shared memory in bytes a block.

    Attributes:
        kernel: its name in the graph.
        params: C types, or sizes where only those are known.
    """

    kernel: str
    entry: str
    language: str
    params: tuple[str, ...]
    registers: int | None
    static_shared: int
    max_threads: int | None


def check_target(bound: BoundGraph, arch: str) -> tuple[list[KernelRow], list[Warning]]:
    """Compile all kernels for `arch` ("sm_90") and compare every launch with what came out.

    Raises:
        CompileError: kernels that do not compile; the first, with the others.
        GraphError: launches that contradict a kernel's signature or go beyond its limits; the first, with the others.
        DeviceUnavailable: NVRTC is not installed.
    """
    limits_of(arch)
    sources = KernelSources(bound.source)
    codes = {name: sources.code(name) for name in bound.source.kernels}
    results = _signatures(bound, codes, arch)
    errors = {id(each): each for each in results.values() if isinstance(each, KgrunError)}
    _raise_all([in_users_files(bound.source, each) for each in errors.values()])
    signatures = {name: each for name, each in results.items() if isinstance(each, KernelSignature)}
    faults: list[KgrunError] = []
    warnings: list[Warning] = []
    for node in bound.nodes:
        if node.launch is not None:
            signature = signatures[node.launch.kernel]
            faults += argument_faults(bound, node, signature.params)
            faults += _launch_faults(bound, node, signature, arch)
            warnings += element_warnings(bound, node, signature.params)
    _raise_all(faults)
    return [_row(codes[name], name, signature) for name, signature in signatures.items()], warnings


def check_arguments_of(bound: BoundGraph, arch: str) -> None:
    """The comparison of arguments alone, before a checked run; raises as `check_target`."""
    sources = KernelSources(bound.source)
    launched = dict.fromkeys(node.launch.kernel for node in bound.nodes if node.launch is not None)
    found = _signatures(bound, {name: sources.code(name) for name in launched}, arch)
    faults: list[KgrunError] = []
    for node in bound.nodes:
        signature = found[node.launch.kernel] if node.launch is not None else None
        if isinstance(signature, KernelSignature):  # what does not compile says so when it is prepared
            faults += argument_faults(bound, node, signature.params)
    _raise_all(faults)


def _raise_all(errors: list[KgrunError]) -> None:
    if errors:
        first, *others = errors
        first.others = (*first.others, *others)
        raise first


def _signatures(
    bound: BoundGraph, codes: Mapping[str, KernelCode], arch: str
) -> dict[str, KernelSignature | KgrunError]:
    """Each kernel's signature with the limits of its machine code, or why there is none; a source is compiled once."""
    groups: dict[tuple[object, ...], dict[str, KernelCode]] = {}
    for name, code in codes.items():
        key = (code.text, code.image, code.options, code.include_dirs, code.language)
        groups.setdefault(key, {})[name] = code
    found: dict[str, KernelSignature | KgrunError] = {}
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for rows in pool.map(lambda group: _group_signatures(bound, group, arch), groups.values()):
            found |= rows
    return {name: found[name] for name in codes}


def _group_signatures(
    bound: BoundGraph, codes: Mapping[str, KernelCode], arch: str
) -> Mapping[str, KernelSignature | KgrunError]:
    """Those of the kernels of one source."""
    first = next(iter(codes.values()))
    try:
        if first.language == "cuda":
            return _source_signatures(codes, arch)
        if first.language == "ptx":
            _check_ptx_target(first, arch)
            return {
                name: _typed(bound, code, signature_of_ptx(code.text or "", code.entry, name=code.label))
                for name, code in codes.items()
            }
        compile_images(list(codes.values()), arch)  # says what is no cubin, or lacks an entry
        _check_cubin_target(first, arch)
        return {
            name: _typed(bound, code, signature_of_cubin(code.image or b"", code.entry, name=code.label))
            for name, code in codes.items()
        }
    except KgrunError as error:
        return dict.fromkeys(codes, error)


def _source_signatures(codes: Mapping[str, KernelCode], arch: str) -> dict[str, KernelSignature]:
    """Signatures with C++ types; with sizes alone where the types cannot be had (an overloaded name)."""
    first = next(iter(codes.values()))
    entries = list(dict.fromkeys(code.entry for code in codes.values()))
    try:
        found = signatures_of_source(
            first.text or "",
            entries,
            name=first.label,
            arch=arch,
            options=first.options,
            include_dirs=first.include_dirs,
        )
    except CompileError:
        images = compile_images(list(codes.values()), arch)  # which says it in the user's terms
        rows = {name: images[code.entry] for name, code in codes.items()}
        return {name: signature_of_cubin(each.data, each.symbol, name=first.label) for name, each in rows.items()}
    return {name: found[code.entry] for name, code in codes.items()}


def _typed(bound: BoundGraph, code: KernelCode, signature: KernelSignature) -> KernelSignature:
    """PTX and cubins know sizes alone; the graph's `params` may add C types."""
    spec = bound.source.kernels[code.kernel] if code.kernel is not None else None
    if spec is None or spec.params is None or len(spec.params) != len(signature.params):
        return signature
    params = []
    for param, text in zip(signature.params, spec.params, strict=True):
        kind = c_type(text)
        named = replace(param, type_name=text, const=kind.const)
        params.append(replace(named, kind="pointer" if kind.pointer else "struct" if param.size > 8 else "scalar"))
    return replace(signature, params=params)


def _launch_faults(bound: BoundGraph, node: BoundNode, signature: KernelSignature, arch: str) -> Iterator[GraphError]:
    """Registers, static shared memory and launch bounds of the compiled kernel against the node's launch."""
    launch = node.launch
    assert launch is not None
    problems = check_launch(
        limits_of(arch), launch.grid, launch.block, signature.static_shared, launch.shared,
        signature.registers or 0, launch.cluster,
    )  # fmt: skip
    for message, path in problems:
        where = bound.source.place("nodes", node.position, *path)
        yield GraphError(f"launch of {node.name!r}: {message}", code="KG360", where=where)
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if signature.max_threads is not None and threads > signature.max_threads and not problems:
        message = f"launch of {node.name!r}: block of {threads} threads > {signature.max_threads} that kernel"
        message += f" {launch.kernel!r} is compiled for"
        where = bound.source.place("nodes", node.position, "block")
        yield GraphError(message, code="KG361", where=where, help="see its __launch_bounds__ or .maxntid")


def _check_ptx_target(code: KernelCode, arch: str) -> None:
    """PTX runs on its own architecture and on later ones; that of `sm_90a` on nothing else."""
    found = _PTX_TARGET.search(code.text or "")
    if found is None:
        return
    wanted = int(re.sub(r"\D", "", arch))
    if int(found[1]) > wanted or (found[2] == "a" and int(found[1]) != wanted):
        message = f"{code.label} is PTX for sm_{found[1]}{found[2] or ''}, which does not run on {arch}"
        raise CompileError(message, code="KG503", where=code.label)


def _check_cubin_target(code: KernelCode, arch: str) -> None:
    """A cubin runs on its own architecture and on later ones of the same generation."""
    image = code.image or b""
    if image[:5] != b"\x7fELF\x02" or len(image) < 52:
        return
    (flags,) = struct.unpack_from("<I", image, 48)
    made = (flags >> 8 if image[8] >= 8 else flags) & 0xFF  # CUDA 13 moved the architecture up by a byte
    wanted = int(re.sub(r"\D", "", arch))
    if made and (made // 10 != wanted // 10 or made > wanted):
        message = f"{code.label} is machine code of sm_{made}, which does not run on {arch}"
        raise CompileError(message, code="KG503", where=code.label)


def _row(code: KernelCode, name: str, signature: KernelSignature) -> KernelRow:
    params: Iterable[str] = (p.type_name or f"{p.size} bytes" for p in signature.params)
    return KernelRow(
        name, code.entry, code.language, tuple(params), signature.registers, signature.static_shared,
        signature.max_threads,
    )  # fmt: skip
