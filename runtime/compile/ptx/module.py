"""The engine's front door: `load_ptx`, its kernels, their compilation and launch."""

from __future__ import annotations

import hashlib
import re
import struct
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from kgrun.graphs.errors import CompileError, UsageError, did_you_mean
from kgrun.runtime.compile.cache import default_cache, digest_key
from kgrun.runtime.compile.ptx import context, faults, jit, lower, runtime
from kgrun.runtime.compile.ptx import launch as launching
from kgrun.runtime.compile.ptx.compiled import CompiledKernel, keep, line_numbers, own_digest, unpack, unsupported
from kgrun.runtime.compile.ptx.context import Unsupported
from kgrun.runtime.compile.ptx.faults import Fault
from kgrun.runtime.compile.ptx.launch import BufferInfo, Dim3, Geometry
from kgrun.runtime.compile.ptx.layout import KIND_NUMBERS
from kgrun.runtime.compile.ptx.parse import Module, parse_module
from kgrun.runtime.compile.ptx.quick_launch import QuickLaunch, run_quick
from kgrun.runtime.compile.ptx.syntax import Param, Variable, align_up, args_size

PLAIN, EXACT, QUICK = "plain", "exact", "quick"  # how a launch runs: see the docs page on checks
CHECKS = frozenset(launching.CHECK_BITS)
_RED_ZONE, _DYNAMIC_ALIGNMENT = 256, 128  # bytes between shared variables where accesses are checked
_HEAP_CALL = re.compile(r"^\s*call[^;]*\b(malloc|free)\s*,", re.MULTILINE)


@dataclass(frozen=True)
class LaunchResult:
    """What a launch reported: faults (empty where all was well) and what the kernel printed."""

    faults: list[Fault]
    printf_text: str


@dataclass
class PtxKernel:
    """One `.entry`: its signature, and `launch`."""

    module: PtxModule
    name: str
    params: list[Param]
    max_threads: int | None
    static_shared: int
    _offsets: dict[str, int] = field(default_factory=dict)
    _ranges: list[tuple[int, int]] = field(default_factory=list)
    _static_end: int = 0
    _sizes: dict[str, int] = field(default_factory=dict)  # of shared variables
    _compiled: dict[tuple[str, bool], tuple[CompiledKernel, Any]] = field(default_factory=dict)
    _doubtful: bool = False  # whether the quick pass could not clear a launch without faults

    @property
    def args_size(self) -> int:
        """Bytes of the packed argument buffer."""
        return args_size(self.params)

    def prepare(self, *, looped: bool = True) -> None:
        """Compile now; raises `DeviceUnavailable` for an operation that does not run on the CPU."""
        self._prepare(PLAIN if not self.module.checks else EXACT if self._doubtful else QUICK, looped)

    def _prepare(self, mode: str, looped: bool) -> tuple[CompiledKernel, Any]:
        looped = looped and mode != EXACT
        if (mode, looped) not in self._compiled:
            ahead = threading.Thread(target=runtime.prepare_ahead)  # the first time, it is compiled beside the kernel
            ahead.start()
            try:
                compiled = self.module._compile(self, mode, looped)
            finally:
                ahead.join()
            runtime.worker()  # whose functions the code below calls
            if mode != PLAIN:
                runtime.addresses(context.CHECKING_CODE if mode == EXACT else context.QUICK_CODE)
            self._compiled[mode, looped] = compiled, jit.LoadedCode(compiled.code)
        return self._compiled[mode, looped]

    def launch(
        self,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        args: bytes,
        *,
        buffers: Sequence[BufferInfo] = (),
        schedule: str = "forward",
        threads: int | None = None,
        timeout_s: float | None = None,
        on_progress: launching.Progress | None = None,
        cooperative: bool = False,
    ) -> LaunchResult:
        """Run the kernel; `shared_bytes` are dynamic, `args` the packed parameters, pointers host addresses.

        `threads` workers share the blocks (default: one a CPU; one where checks or another schedule ask for it).
        `on_progress(fraction, seconds)` is called about once a second, so that a caller can estimate and warn.
        Of a `cooperative` launch all blocks are in flight at once.
        Raises `UsageError` where the launch does not fit the kernel, `DeviceUnavailable` for what cannot run here,
        `TimeoutExpired` after `timeout_s` seconds.
        """
        if len(args) < self.args_size:
            raise UsageError(f"{self.name} takes {self.args_size} bytes of arguments, got {len(args)}", code="KG200")
        count = block[0] * block[1] * block[2]
        if self.max_threads is not None and count > self.max_threads:
            raise UsageError(f"{self.name} allows {self.max_threads} threads a block, got {count}", code="KG200")
        run = partial(
            self._run, grid, block, shared_bytes, args, [*buffers, *self.module.memory_buffers()],
            schedule=schedule, threads=threads, timeout_s=timeout_s, on_progress=on_progress, cooperative=cooperative,
        )  # fmt: skip
        passes = [PLAIN] if not self.module.checks else [EXACT] if self._doubtful else [QUICK, EXACT]
        for mode in passes:
            result = run(mode)
            if result is not None:
                break
        assert result is not None, "only the quick pass leaves a question open"
        self._doubtful |= mode == EXACT and not result.faults
        return result

    def _run(
        self,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        args: bytes,
        every: list[BufferInfo],
        mode: str,
        **settings: Any,
    ) -> LaunchResult | None:
        """One pass over a launch; None where the quick pass suspects a fault, with memory as it was before."""
        compiled, code = self._prepare(mode, settings["schedule"] == "forward")
        dynamic = align_up(self._static_end, _DYNAMIC_ALIGNMENT)
        ranges = [*self._ranges, *([(dynamic, dynamic + shared_bytes)] if shared_bytes else [])]
        geometry = Geometry(
            code.address("kg_region"),
            code.address("kg_step"),
            compiled.kinds,
            line_numbers(compiled.places),
            compiled.frame_bytes,
            compiled.local_bytes,
            ranges,
            dynamic if shared_bytes else self._static_end,
            compiled.waits,
            compiled.spins,
            compiled.looped,
            self.module.memory_address,
            _matrix_code(compiled.kinds),
        )
        launch = partial(
            launching.run,
            geometry,
            grid,
            block,
            align_up(dynamic + shared_bytes, 16),
            args,
            every,
            checks=self.module.checks,
            **settings,
        )
        if mode == QUICK:
            quick = self._quick_launch(compiled, args, shared_bytes)
            found = run_quick(launch, quick, every, whole=compiled.whole and compiled.looped)
            if found is None:
                return None
            result = found
        else:
            result = launch()
        words = faults.Words(self.name, compiled.sites, compiled.places, every, self._shared_words(ranges))
        return LaunchResult([words.describe(raw, result) for raw in result.faults], result.text)

    def _quick_launch(self, compiled: CompiledKernel, args: bytes, shared_bytes: int) -> QuickLaunch:
        """What the quick pass needs of this launch: where the origins of the kernel's addresses point."""
        pointers: list[tuple[int, bool]] = []
        for origin in compiled.slots:
            kind, _, name = origin.partition(":")
            if kind == "param":
                (address,) = struct.unpack_from("<Q", args, int(name))
            else:
                address = self.module.symbol(name)[0]
            pointers.append((address, origin in compiled.written))
        return QuickLaunch(pointers, compiled.anywhere, self.module.checks, compiled.shifts, shared_bytes)

    def _shared_words(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[str, int, int]]:
        """(name, begin, end) of each shared variable; the dynamic one has the launch's own size."""
        names = {offset: name for name, offset in self._offsets.items()}
        return [(faults.plain_name(names.get(begin, "dynamic")), begin, end) for begin, end in ranges]


class PtxModule:
    """A PTX module: its kernels, and the memory of its variables."""

    def __init__(self, parsed: Module, text: str, checks: frozenset[str]) -> None:
        self.parsed = parsed
        self.checks = checks
        self._digest = hashlib.sha256(text.encode()).hexdigest()
        self._kernels: dict[str, PtxKernel] = {}
        self.addresses, size = _place([v for v in parsed.variables.values() if v.space in ("global", "const")], 0)
        self._memory = np.zeros(size + 256, np.uint8)
        self.memory_address = align_up(self._memory.ctypes.data, 256)
        self._initialise()

    @property
    def entries(self) -> list[str]:
        return self.parsed.entries

    def kernel(self, entry: str) -> PtxKernel:
        """The kernel named `entry` (a symbol, mangled where the source does not say `extern "C"`)."""
        if entry not in self._kernels:
            if entry not in self.parsed.entries:
                hint = did_you_mean(entry, self.entries) or f"it has {', '.join(self.entries) or 'no kernel'}"
                raise CompileError(f"no kernel {entry!r} in {self.parsed.name}", code="KG504", help=hint)
            self._kernels[entry] = self._make_kernel(entry)
        return self._kernels[entry]

    def symbol(self, name: str) -> tuple[int, int]:
        """(address, bytes) of a `__device__` or `__constant__` variable."""
        return self.memory_address + self.addresses[name], self.parsed.variables[name].size

    def prepare(self, entries: Sequence[str], *, looped: bool = True, workers: int = 2) -> None:
        """Compile several kernels, `workers` at a time."""
        with ThreadPoolExecutor(max_workers=workers) as pool:
            list(pool.map(lambda entry: self.kernel(entry).prepare(looped=looped), entries))

    def memory_buffers(self) -> list[BufferInfo]:
        if not self.checks:
            return []
        constant = {name for name, variable in self.parsed.variables.items() if variable.space == "const"}
        return [BufferInfo(name, *self.symbol(name), name in constant) for name in self.addresses]

    def _make_kernel(self, entry: str) -> PtxKernel:
        function = self.parsed.function(entry)
        reached = self._reached(entry)
        texts = [self.parsed.body_text(name) for name in reached]
        variables = [
            variable
            for name in reached
            for variable in self.parsed.function(name).variables.values()
            if variable.space == "shared"
        ]
        variables += [
            variable
            for variable in self.parsed.variables.values()
            if variable.space == "shared" and any(variable.name in text for text in texts)
        ]
        static = [variable for variable in variables if variable.size]
        dynamic = [variable for variable in variables if not variable.size]
        gap = _RED_ZONE if self.checks else 0
        offsets, end = _place(static, gap)
        ranges = [(offsets[v.name], offsets[v.name] + v.size) for v in static]
        offsets |= {variable.name: align_up(end, _DYNAMIC_ALIGNMENT) for variable in dynamic}
        tight = _place(static, 0)[1]
        sizes = {variable.name: variable.size for variable in variables}
        kernel = PtxKernel(self, entry, function.params, function.max_threads, tight, offsets, ranges, end, sizes)
        kernel._doubtful = any(_HEAP_CALL.search(text) for text in texts)  # no run of it can be taken back
        return kernel

    def _reached(self, entry: str) -> list[str]:
        """`entry` and the functions that it or another of them names."""
        reached = [entry]
        others = [name for name, other in self.parsed.signatures.items() if not other.is_entry]
        for name in reached:  # grows on the way
            text = self.parsed.body_text(name)
            named = [*self.parsed.pointer_targets()] if ".callprototype" in text else []
            named += [other for other in others if other in text]
            reached += [o for o in dict.fromkeys(named) if o not in reached and self.parsed.has_body(o)]
        return reached

    def _initialise(self) -> None:
        start = self.memory_address - self._memory.ctypes.data
        for name, offset in self.addresses.items():
            variable = self.parsed.variables[name]
            data = np.frombuffer(variable.initial, np.uint8)
            self._memory[start + offset : start + offset + len(data)] = data
            for place, symbol, addend in variable.relocations:
                if symbol in self.addresses:
                    address = self.memory_address + self.addresses[symbol] + addend
                else:
                    address = self.parsed.pointer_targets().get(symbol, 0)
                pointer = np.frombuffer(struct.pack("<Q", address), np.uint8)
                self._memory[start + offset + place : start + offset + place + 8] = pointer

    def _compile(self, kernel: PtxKernel, mode: str, looped: bool) -> CompiledKernel:
        store = default_cache()
        checks = ",".join(sorted(self.checks))
        parts = [kernel.name, self._digest, checks, mode, str(looped), own_digest(), jit.identity()]
        key = digest_key(["cpu-kernel", *parts])
        if (found := store.get(key)) is not None:
            return unpack(found)
        try:
            lowered = lower.lower_kernel(
                self.parsed,
                kernel.name,
                runtime=runtime.module(),
                addresses=self.addresses,
                shared=kernel._offsets,
                checks=self.checks,
                looped=looped,
                sizes=dict(kernel._sizes) if mode == QUICK else None,
            )
        except Unsupported as error:
            raise unsupported(error, kernel.name, self.parsed.name) from error
        compiled = CompiledKernel(
            jit.compile_ir(lowered.text, None),
            lowered.kinds,
            [(place.file, place.line) for place in lowered.places],
            [(place.file, place.line, what) for place, what in lowered.sites],
            lowered.frame_bytes,
            lowered.local_bytes,
            lowered.waits,
            lowered.spins,
            lowered.looped,
        )
        if lowered.quick is not None:
            compiled.slots, compiled.written = lowered.slots, sorted(lowered.quick.written)
            compiled.whole, compiled.anywhere = lowered.whole, lowered.quick.anywhere
            compiled.shifts = (lowered.quick.shift, lowered.quick.shared_shift)
        keep(store, key, compiled)
        return compiled


def load_ptx(ptx: str, *, name: str, checks: frozenset[str] = frozenset()) -> PtxModule:
    """Parse a PTX module; `checks` are any of bounds, race, init, barrier.

    Raises `CompileError` where the text is no PTX. Kernels are compiled when they are first launched or prepared.
    """
    if unknown := checks - CHECKS:
        raise UsageError(f"unknown check {', '.join(sorted(unknown))}", code="KG214", help=", ".join(sorted(CHECKS)))
    return PtxModule(parse_module(ptx, name), ptx, checks)


def _place(variables: Sequence[Variable], gap: int) -> tuple[dict[str, int], int]:
    offsets, end = {}, gap
    for variable in variables:
        offsets[variable.name] = align_up(end, max(variable.align, 1))
        end = offsets[variable.name] + variable.size + gap
    return offsets, end


def _matrix_code(kinds: Sequence[int]) -> int:
    """The address of the matrix instructions' code where a kernel has any, else 0."""
    if any(kind & 255 >= KIND_NUMBERS["ldmatrix"] for kind in kinds):
        return runtime.addresses(context.MATRIX_CODE)["kg_collect_matrix"]
    return 0
