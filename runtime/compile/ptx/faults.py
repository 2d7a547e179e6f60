"""Faults as a user reads them: kind, source line, tensor and element, block, thread, and the other access."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kgrun.runtime.compile.ptx.launch import BufferInfo, Dim3, RawResult
from kgrun.runtime.compile.ptx.layout import FAULT_KINDS

_NO_SITE = (0xFFFFFFFF, 0xFFFF)
_SHARED, _LOCAL, _HEAP = 0xFFFFFFFE, 0xFFFFFFFD, 0xFFFFFFFC


@dataclass(frozen=True)
class Access:
    """The other access of a race, or another thread that waits."""

    file: str
    line: int
    operation: str
    block: Dim3
    thread: Dim3


@dataclass(frozen=True)
class Fault:
    """One distinct fault: `count` accesses of the same instruction share it; `offset` is in bytes of `tensor`."""

    kind: str
    file: str
    line: int
    kernel: str
    operation: str
    tensor: str
    offset: int | None
    size: int
    block: Dim3
    thread: Dim3
    count: int
    other: Access | None

    def __str__(self) -> str:
        what = f"{self.kind}: {self.operation}" + (f" of {self.tensor}" if self.tensor else "")
        if self.offset is not None:
            what += f" at byte {self.offset}"
        text = f"{what}, {self.file}:{self.line}, kernel {self.kernel}, block {self.block}, thread {self.thread}"
        if self.other:
            other = self.other
            text += f"; other: {other.operation}, {other.file}:{other.line}, block {other.block}, thread {other.thread}"
        return text + (f" ({self.count} times)" if self.count > 1 else "")


@dataclass(frozen=True)
class Words:
    """What a kernel's fault records refer to: its sites and waits in the source, the buffers, the shared variables."""

    kernel: str
    sites: Sequence[tuple[str, int, str]]
    places: Sequence[tuple[str, int]]
    buffers: Sequence[BufferInfo]
    shared: Sequence[tuple[str, int, int]]  # (name, begin, end)

    def describe(self, raw: Any, result: RawResult) -> Fault:
        """A fault record in the words of the source."""
        kind = FAULT_KINDS[raw.kind]
        waits = kind in ("deadlock", "divergent-barrier")
        file, line, operation = self._place(raw.site, waits)
        tensor, offset = self._target(raw, result) if raw.size and kind != "assertion" else ("", None)
        block, thread = _coordinates(raw.block, result.grid), _coordinates(raw.thread, result.block)
        other = self._other(raw, waits, result)
        return Fault(
            kind, file, line, self.kernel, operation, tensor, offset, raw.size, block, thread, raw.count, other
        )

    def _other(self, raw: Any, waits: bool, result: RawResult) -> Access | None:
        if raw.other_site in _NO_SITE or raw.other_thread == 0xFFFFFFFF:
            return None
        file, line, operation = self._place(raw.other_site, waits)
        block, thread = _coordinates(raw.other_block, result.grid), _coordinates(raw.other_thread, result.block)
        return Access(file, line, operation, block, thread)

    def _place(self, site: int, waits: bool) -> tuple[str, int, str]:
        if waits:
            return (*self.places[site], "wait") if site < len(self.places) else ("", 0, "wait")
        return self.sites[site] if site < len(self.sites) else ("", 0, "")

    def _target(self, raw: Any, result: RawResult) -> tuple[str, int | None]:
        if raw.buffer == _SHARED:
            base = max((a for a in result.shared_addresses if a <= raw.address), default=raw.address)
            return self._shared_target(raw.address - base)
        if raw.buffer == _LOCAL:
            return "local memory", None
        if raw.buffer == _HEAP:
            return "memory from malloc", None
        if raw.buffer < len(self.buffers):
            return self.buffers[raw.buffer].name, raw.address - self.buffers[raw.buffer].address
        return _nearest(raw.address, self.buffers)

    def _shared_target(self, offset: int) -> tuple[str, int]:
        """The shared variable that an offset lies in, or is nearest to."""
        if not self.shared:
            return "shared memory", offset
        name, begin, _ = min(self.shared, key=lambda row: max(row[1] - offset, offset - row[2] + 1, 0))
        return f"shared {name}", offset - begin


def plain_name(symbol: str) -> str:
    """A variable's own name out of a symbol such as `_ZZ6kernelPfE4tile`."""
    match = re.match(r"_ZZ.*E(\d+)([A-Za-z_]\w*?)(?:_\d+)?$", symbol)
    return match.group(2)[: int(match.group(1))] if match else symbol


def _nearest(address: int, buffers: Sequence[BufferInfo]) -> tuple[str, int | None]:
    """The buffer that a stray address is closest to: its name, and the offset from its start."""
    if not buffers:
        return "", None
    near = min(buffers, key=lambda info: max(info.address - address, address - (info.address + info.nbytes - 1)))
    distance = max(near.address - address, address - (near.address + near.nbytes - 1))
    return (near.name, address - near.address) if distance < 1 << 24 else ("", None)


def _coordinates(linear: int, dims: Dim3) -> Dim3:
    return linear % dims[0], linear // dims[0] % dims[1], linear // (dims[0] * dims[1])
