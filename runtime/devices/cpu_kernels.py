"""Custom CUDA kernels on the CPU: compiled to PTX by NVRTC, to machine code by LLVM, and launched on host memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kgrun.graphs.errors import DeviceUnavailable
from kgrun.runtime.devices.base import Address
from kgrun.runtime.devices.cuda_arguments import check_arguments, pack
from kgrun.runtime.devices.cuda_cubin import Parameter
from kgrun.runtime.program import KernelCode, Launch

if TYPE_CHECKING:
    from kgrun.runtime.compile.ptx.module import PtxKernel, PtxModule

# Code behind newer architectures would use instructions that have no meaning on a CPU.
ARCH = "sm_80"


class CpuKernels:
    """Modules compiled for the CPU, one a source."""

    def __init__(self) -> None:
        self._modules: dict[tuple[object, ...], tuple[PtxModule, dict[str, str]]] = {}

    def prepare_all(self, codes: Iterable[KernelCode]) -> None:
        """Compile each source once, and its kernels side by side.

        Raises:
            CompileError: the source does not compile.
            DeviceUnavailable: the compiler is missing, or a kernel has an operation that the CPU does not run.
        """
        by_source: dict[tuple[object, ...], list[KernelCode]] = {}
        for code in codes:
            by_source.setdefault(_source_key(code), []).append(code)
        for sources in by_source.values():
            entries = list(dict.fromkeys(code.entry for code in sources))
            module, symbols = self._module(sources[0], entries)
            module.prepare([symbols.get(entry, entry) for entry in entries])

    def launcher(self, launch: Launch, address: Address) -> Callable[[], None]:
        """A call that runs the kernel to its end on all cores; raises as `prepare_all`, GraphError for its arguments."""
        kernel = self._kernel(launch.code)
        check_arguments(launch, [Parameter(param.offset, param.size) for param in kernel.params])
        block = pack(launch.args, address)

        def run() -> None:
            result = kernel.launch(launch.grid, launch.block, launch.shared, block)
            if result.printf_text:
                import sys

                sys.stderr.write(result.printf_text)

        return run

    def _kernel(self, code: KernelCode) -> PtxKernel:
        module, symbols = self._module(code, [code.entry])
        return module.kernel(symbols.get(code.entry, code.entry))

    def _module(self, code: KernelCode, entries: list[str]) -> tuple[PtxModule, dict[str, str]]:
        key = _source_key(code)
        found = self._modules.get(key)
        if found is not None and all(found[1].get(e, e) in found[0].entries for e in entries):
            return found
        from kgrun.runtime.compile.ptx.module import load_ptx

        text, symbols = _ptx(code, sorted({*entries, *(found[1] if found else ())}))
        self._modules[key] = load_ptx(text, name=code.label), symbols
        return self._modules[key]


def _source_key(code: KernelCode) -> tuple[object, ...]:
    return code.text, code.image, code.options, code.include_dirs, code.language


def _ptx(code: KernelCode, entries: list[str]) -> tuple[str, dict[str, str]]:
    """PTX text, and the symbol of each entry that is not named as in the source."""
    if code.language == "ptx":
        return code.text or "", {}
    if code.language == "cubin":
        raise DeviceUnavailable(
            f"kernel {code.entry!r} of {code.label} is a cubin: machine code of a GPU, which a CPU cannot run",
            code="KG711",
            help="give its source or PTX, or use --device cuda",
        )
    from kgrun.runtime.compile.nvrtc import compile_cuda

    compiled = compile_cuda(
        code.text or "",
        name=code.label,
        arch=ARCH,
        kind="ptx",
        options=code.options,
        include_dirs=code.include_dirs,
        name_expressions=entries,
    )
    return compiled.image.decode(), dict(compiled.lowered_names)
