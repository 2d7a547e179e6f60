"""Kernel code on one GPU: compiled, loaded and looked up once each, with errors that name the kernel."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kgrun.graphs.cubin import Parameter, read_cubin
from kgrun.graphs.errors import CompileError, KgrunError, did_you_mean
from kgrun.graphs.records import dataclass
from kgrun.runtime.compile.nvrtc import Compiled, compile_cuda
from kgrun.runtime.devices.cuda_driver import Driver, FunctionFacts, LoadFailed
from kgrun.runtime.devices.cuda_errors import is_sticky, translate
from kgrun.runtime.program import KernelCode

_PTX_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_PTX_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?", re.DOTALL)
_PTX_PARAM = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.([a-z])(\d+)(?:\s+\.ptr[^\[,]*)?\s*[\w$]+(?:\[(\d+)\])?")
_FAT_BINARY = b"\x50\xed\x55\xba"
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
class Image:
    data: bytes
    symbol: str
    parameters: tuple[Parameter, ...] | None


_Key = tuple[str | bytes | None, tuple[str, ...], tuple[Path, ...], str]


class CodeStore:
    """Compiled images, loaded modules and functions of one device."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._arch = driver.facts.arch
        self._images: dict[tuple[_Key, str], Image] = {}
        self._modules: dict[bytes, Any] = {}
        self._kernels: dict[tuple[_Key, str], LoadedKernel] = {}

    def compile_all(self, codes: Iterable[KernelCode]) -> None:
        """Compile each source once for all its kernels, several sources at a time; loading stays with `kernel`."""
        groups: dict[_Key, dict[str, KernelCode]] = {}
        for code in codes:
            if (_key(code), code.entry) not in self._images:
                groups.setdefault(_key(code), {})[code.entry] = code
        if len(groups) < 2:
            for group in groups.values():
                self._compile(list(group.values()))
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1, len(groups))) as pool:
            for _ in pool.map(self._compile, [list(group.values()) for group in groups.values()]):
                pass

    def kernel(self, code: KernelCode) -> LoadedKernel:
        """The function that `code` names; CompileError when it does not compile, load or have that entry.

        A fault of an earlier step that shows while loading is raised as the driver has it.
        """
        key = (_key(code), code.entry)
        if key not in self._kernels:
            self._kernels[key] = self._load(code)
        return self._kernels[key]

    def clear(self) -> None:
        """Forget everything; the modules unload with their last reference."""
        self._kernels.clear()
        self._modules.clear()
        self._images.clear()

    def _compile(self, codes: Sequence[KernelCode]) -> None:
        self._images.update(
            {(_key(codes[0]), entry): image for entry, image in compile_images(codes, self._arch).items()}
        )

    def _image(self, code: KernelCode) -> Image:
        key = (_key(code), code.entry)
        if key not in self._images:
            self._compile([code])
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
            if is_sticky(error):  # not this code's fault: an earlier step's, which shows here
                raise
            raise _load_error(error, code, driver.facts.cuda, self._arch) from error


def kernel_image(code: KernelCode, arch: str) -> bytes:
    """The machine code of a kernel, compiled as for a device of `arch`, from the cache where it is there."""
    return compile_images([code], arch)[code.entry].data


def _key(code: KernelCode) -> _Key:
    return (code.text if code.text is not None else code.image, code.options, code.include_dirs, code.language)


def compile_images(codes: Sequence[KernelCode], arch: str) -> dict[str, Image]:
    """The images of kernels of one source, by entry."""
    code = codes[0]
    if code.language == "cuda":
        return _compile_source(codes, arch)
    if code.language == "cubin":
        data = code.image or b""
        if not data.startswith((b"\x7fELF", _FAT_BINARY)):
            raise CompileError(f"kernel {code.entry} does not load: {code.label} is no cubin", code="KG503")
        kernels = {name: facts.parameters for name, facts in read_cubin(data).items()}
    else:
        text = code.text if code.text is not None else (code.image or b"").decode("utf-8", "replace")
        data, kernels = text.encode().rstrip(b"\0") + b"\0", ptx_parameters(text)
    for code in codes:
        if code.entry not in kernels and (kernels or code.language == "ptx"):
            raise _no_entry(code, list(kernels))
    return {code.entry: Image(data, code.entry, kernels.get(code.entry)) for code in codes}


def _compile_source(codes: Sequence[KernelCode], arch: str) -> dict[str, Image]:
    """Compile once; templates, namespaces and C++ functions are found by their name expressions."""
    first, text = codes[0], codes[0].text or ""
    for code in codes:
        if not re.search(rf"\b{re.escape(_base(code.entry))}\b", text) and "#include" not in text and "##" not in text:
            raise _no_entry(code, _GLOBAL.findall(text))
    plain = 'extern "C"' in text
    expressions = [code.entry for code in codes if not plain or _base(code.entry) != code.entry]
    compiled = _nvrtc(first, arch, expressions)
    kernels = read_cubin(compiled.image)
    missing = [code.entry for code in codes if code.entry not in kernels and code.entry not in expressions]
    if missing and kernels:  # a C++ function in a source that has extern "C" elsewhere
        try:
            compiled = _nvrtc(first, arch, [*expressions, *missing])
        except CompileError as error:
            raise _no_entry(next(code for code in codes if code.entry in missing), list(kernels)) from error
        kernels = read_cubin(compiled.image)
    images = {}
    for code in codes:
        symbol = compiled.lowered_names.get(code.entry, code.entry)
        if kernels and symbol not in kernels:
            raise _no_entry(code, list(kernels))
        images[code.entry] = Image(compiled.image, symbol, kernels[symbol].parameters if kernels else None)
    return images


def _base(entry: str) -> str:
    """`fill` of `a::fill<float, 3>`."""
    return re.split(r"[<(]", entry)[0].rsplit("::", 1)[-1].strip()


def _nvrtc(code: KernelCode, arch: str, expressions: Sequence[str]) -> Compiled:
    return compile_cuda(
        code.text or "",
        name=code.label,
        arch=arch,
        options=code.options,
        include_dirs=code.include_dirs,
        name_expressions=expressions,
    )


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
