"""Custom CUDA kernels on the CPU: compiled to PTX by NVRTC, to machine code by LLVM, and launched on host memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kgrun.graphs.cubin import Parameter
from kgrun.graphs.errors import DeviceFault, DeviceUnavailable, GraphError
from kgrun.graphs.limits import check_launch, limits_of
from kgrun.runtime.devices.base import Address
from kgrun.runtime.devices.cuda_arguments import check_arguments, pack
from kgrun.runtime.program import KernelCode, Launch, Step

if TYPE_CHECKING:
    from kgrun.runtime.checks.followed import KernelChecks
    from kgrun.runtime.compile.ptx.launch import BufferInfo
    from kgrun.runtime.compile.ptx.module import PtxKernel, PtxModule

# Code behind newer architectures would use instructions that have no meaning on a CPU.
ARCH = "sm_80"


class CpuKernels:
    """Modules compiled for the CPU, one a source and set of checks.

    Attributes:
        checks: what to follow in kernels, and where their faults go; None for a plain run.
    """

    def __init__(self) -> None:
        self.checks: KernelChecks | None = None
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
            module.prepare([symbols.get(entry, entry) for entry in entries], looped=self._looped)

    def launcher(self, step: Step, launch: Launch, address: Address) -> Callable[[], None]:
        """A call that runs the kernel to its end on all cores.

        Raises as `prepare_all`, GraphError for its arguments; the call raises DeviceFault for a kernel that hangs,
        traps or fails an assertion, unless checks keep its faults.
        """
        kernel = self._kernel(launch.code)
        check_arguments(launch, [Parameter(param.offset, param.size) for param in kernel.params])
        _check_launch(step, launch, kernel)
        kernel.prepare(looped=self._looped)
        block, checks = pack(launch.args, address), self.checks
        buffers: list[BufferInfo] = [] if checks is None else checks.buffers(step, address)
        schedule = "forward" if checks is None else checks.schedule
        warning = self._warning(step, launch, kernel)

        def run() -> None:
            nonlocal warning
            if warning is not None:
                sys.stderr.write(warning)
                sys.stderr.flush()
                warning = None
            result = kernel.launch(
                launch.grid, launch.block, launch.shared, block,
                buffers=buffers, schedule=schedule, cooperative=launch.cooperative,
            )  # fmt: skip
            if result.printf_text:
                sys.stderr.write(result.printf_text)
            if result.faults:
                if checks is None:
                    raise DeviceFault(f"{step.name!r}: {result.faults[0]}", code="KG611")
                checks.take(step, result.faults)

        return run

    @property
    def _looped(self) -> bool:
        return self.checks is None or self.checks.schedule == "forward"

    def _warning(self, step: Step, launch: Launch, kernel: PtxKernel) -> str | None:
        """What to say before a kernel that will take long; None for others."""
        from kgrun.runtime.checks.cost import long_run

        threads = 1
        for extent in (*launch.grid, *launch.block):
            threads *= extent
        took = long_run(kernel.module.parsed.body_text(kernel.name), threads, bool(kernel.module.checks))
        return took and f"warning: {step.name!r} may take about {took} on the CPU ({threads:,} threads)\n"

    def _kernel(self, code: KernelCode) -> PtxKernel:
        module, symbols = self._module(code, [code.entry])
        return module.kernel(symbols.get(code.entry, code.entry))

    def _module(self, code: KernelCode, entries: list[str]) -> tuple[PtxModule, dict[str, str]]:
        names = frozenset() if self.checks is None else self.checks.names
        key = (*_source_key(code), names)
        found = self._modules.get(key)
        if found is not None and all(found[1].get(e, e) in found[0].entries for e in entries):
            return found
        from kgrun.runtime.compile.ptx.module import load_ptx

        text, symbols = _ptx(code, sorted({*entries, *(found[1] if found else ())}))
        self._modules[key] = load_ptx(text, name=code.label, checks=names), symbols
        return self._modules[key]


def _check_launch(step: Step, launch: Launch, kernel: PtxKernel) -> None:
    """GraphError KG360 or KG361 for a launch that no GPU would take either: shared memory, `__launch_bounds__`."""
    found = check_launch(limits_of(), launch.grid, launch.block, kernel.static_shared, launch.shared)
    threads, code = launch.block[0] * launch.block[1] * launch.block[2], "KG360"
    if not found and kernel.max_threads is not None and threads > kernel.max_threads:
        text = f"block of {threads} threads > {kernel.max_threads} that kernel {kernel.name} was compiled for"
        found, code = [(text, ("block",))], "KG361"
    if found:
        text, path = found[0]
        raise GraphError(f"launch of {step.name!r}: {text}", code=code, details={"path": list(path)})


def _source_key(code: KernelCode) -> tuple[object, ...]:
    return code.text, code.image, code.options, code.include_dirs, code.language


def _ptx(code: KernelCode, entries: list[str]) -> tuple[str, dict[str, str]]:
    """PTX text, and the symbol of each entry that is not named as in the source."""
    if code.language == "ptx" or (code.language == "cubin" and code.text is not None):
        return code.text or "", {}
    if code.language == "cubin":
        raise DeviceUnavailable(
            f"kernel {code.entry!r} of {code.label} is a cubin: machine code of a GPU, which a CPU cannot run",
            code="KG711",
            help="give its source, or its PTX (`ptx`), or use --device cuda, or let it count as skipped (--allow-skip)",
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
