"""Kernel code on one GPU: compiled, loaded and looked up once each, with errors that name the kernel."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgrun.graphs.errors import CompileError, KgrunError, did_you_mean
from kgrun.runtime.compile.nvrtc import compile_cuda
from kgrun.runtime.devices.cuda_cubin import Parameter, read_cubin
from kgrun.runtime.devices.cuda_driver import Driver, FunctionFacts, LoadFailed
from kgrun.runtime.devices.cuda_errors import translate
from kgrun.runtime.program import KernelCode

_PTX_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_PTX_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?", re.DOTALL)
_PTX_PARAM = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.([a-z])(\d+)(?:\s+\.ptr[^\[,]*)?\s*[\w$]+(?:\[(\d+)\])?")
_GLOBAL = re.compile(r"__global__\s+(?:\w+\s*\([^)]*\)\s*)*?void\s+(?:__\w+__\s*\([^)]*\)\s*)*(\w+)\s*\(")
_PTX_OF_CUDA_12 = (0, 1, 2, 3, 4, 5, 5, 6, 7, 8)  # PTX 8.x of CUDA 12.0, 12.1, …


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A function on the device with what is known of it; `parameters` None where the code does not tell."""

    function: Any
    symbol: str
    parameters: tuple[Parameter, ...] | None
    facts: FunctionFacts


@dataclass(frozen=True, slots=True)
class _Image:
    data: bytes
    symbol: str
    parameters: tuple[Parameter, ...] | None


_Key = tuple[str | bytes | None, tuple[str, ...], tuple[Path, ...], str]


class CodeStore:
    """Compiled images, loaded modules and functions of one device."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._arch = driver.facts.arch
        self._images: dict[tuple[_Key, str], _Image] = {}
        self._modules: dict[bytes, Any] = {}
        self._kernels: dict[tuple[_Key, str], LoadedKernel] = {}

    def compile_all(self, codes: Iterable[KernelCode]) -> None:
        """Compile what is not compiled yet, several at a time; loading stays with `kernel`."""
        missing = {_key(code): code for code in codes if (_key(code), code.entry) not in self._images}
        if len(missing) < 2:
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1, len(missing))) as pool:
            for _ in pool.map(self._image, missing.values()):
                pass

    def kernel(self, code: KernelCode) -> LoadedKernel:
        """The function that `code` names; CompileError when it does not compile, load or have that entry."""
        key = (_key(code), code.entry)
        if key not in self._kernels:
            self._kernels[key] = self._load(code)
        return self._kernels[key]

    def clear(self) -> None:
        """Forget everything; the modules unload with their last reference."""
        self._kernels.clear()
        self._modules.clear()
        self._images.clear()

    def _image(self, code: KernelCode) -> _Image:
        key = (_key(code), code.entry)
        if key not in self._images:
            self._images[key] = _compile(code, self._arch)
        return self._images[key]

    def _load(self, code: KernelCode) -> LoadedKernel:
        image = self._image(code)
        driver = self._driver
        try:
            if image.data not in self._modules:
                self._modules[image.data] = driver.load(image.data, code.label)
            function = driver.function(self._modules[image.data], image.symbol)
            return LoadedKernel(function, image.symbol, image.parameters, driver.function_facts(function))
        except driver.errors as error:
            raise _load_error(error, code, driver.facts.cuda, self._arch) from error


def _key(code: KernelCode) -> _Key:
    return (code.text if code.text is not None else code.image, code.options, code.include_dirs, code.language)


def _compile(code: KernelCode, arch: str) -> _Image:
    if code.language == "cubin":
        data = code.image or b""
        kernels = read_cubin(data)
        if kernels and code.entry not in kernels:
            raise _no_entry(code, list(kernels))
        return _Image(data, code.entry, kernels[code.entry].parameters if kernels else None)
    if code.language == "ptx":
        text = code.text if code.text is not None else (code.image or b"").decode("utf-8", "replace")
        entries = ptx_parameters(text)
        if code.entry not in entries:
            raise _no_entry(code, list(entries))
        return _Image(text.encode().rstrip(b"\0") + b"\0", code.entry, entries[code.entry])
    return _compile_source(code, arch)


def _compile_source(code: KernelCode, arch: str) -> _Image:
    text = code.text or ""
    base = re.split(r"[<(]", code.entry)[0].rsplit("::", 1)[-1].strip()
    if not re.search(rf"\b{re.escape(base)}\b", text) and "#include" not in text and "##" not in text:
        raise _no_entry(code, _GLOBAL.findall(text))
    plain = base == code.entry and 'extern "C"' in text
    for names in ([], [code.entry]) if plain else ([code.entry],):
        compiled = compile_cuda(
            text,
            name=code.label,
            arch=arch,
            options=code.options,
            include_dirs=code.include_dirs,
            name_expressions=names,
        )
        kernels = read_cubin(compiled.image)
        symbol = compiled.lowered_names.get(code.entry, code.entry)
        if symbol in kernels or not kernels:
            return _Image(compiled.image, symbol, kernels[symbol].parameters if kernels else None)
    raise _no_entry(code, list(kernels))


def _no_entry(code: KernelCode, known: Sequence[str]) -> CompileError:
    help = did_you_mean(code.entry, known) or (f"kernels in it: {', '.join(known)}" if known else "it has no kernels")
    return CompileError(f"no kernel {code.entry!r} in {code.label}", code="KG504", help=help)


def ptx_parameters(text: str) -> dict[str, tuple[Parameter, ...] | None]:
    """The parameter layout of each entry in PTX text; None for an entry whose parameters cannot be read."""
    found: dict[str, tuple[Parameter, ...] | None] = {}
    for name, body in _PTX_ENTRY.findall(re.sub(r"//[^\n]*", "", text)):
        rows, at = [], 0
        declared = [part for part in body.split(",") if part.strip()]
        for part in declared:
            match = _PTX_PARAM.search(part)
            if match is None:
                break
            width = int(match[3]) // 8
            size = width * int(match[4] or 1)
            align = int(match[1] or width)
            at = -(-at // align) * align
            rows.append(Parameter(at, size))
            at += size
        found[name] = tuple(rows) if len(rows) == len(declared) else None
    return found


def newest_ptx(cuda: tuple[int, int]) -> tuple[int, int]:
    """The newest PTX version that a driver for CUDA `cuda` takes (PTX ISA, release history)."""
    major, minor = cuda
    if major == 12:
        return 8, _PTX_OF_CUDA_12[min(minor, len(_PTX_OF_CUDA_12) - 1)]
    return major - 4, minor


def _load_error(error: Exception, code: KernelCode, cuda: tuple[int, int], arch: str) -> KgrunError:
    log = error.log if isinstance(error, LoadFailed) else ""
    if code.language == "ptx" and (match := _PTX_VERSION.search(code.text or "")):
        version, newest = (int(match[1]), int(match[2])), newest_ptx(cuda)
        if version > newest:
            driver = f"this driver (CUDA {cuda[0]}.{cuda[1]}) accepts up to {newest[0]}.{newest[1]}"
            message = f"PTX ISA {version[0]}.{version[1]} of {code.label} needs a newer driver; {driver}"
            help = "compile to a cubin, or for an older PTX version"
            return CompileError(
                message + (f"\n{log}" if log else ""), code="KG505", help=help, details={"log": log, "arch": arch}
            )
    found = translate(error, f"kernel {code.entry} of {code.label} does not load on {arch}", image=True)
    if log:
        found.message += f"\n{log}"
        found.details["log"] = log
    return found
