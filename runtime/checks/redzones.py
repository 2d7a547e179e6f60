"""Canaries: bytes around every buffer that nobody may write, looked at after every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kgrun.runtime.checks.findings import Finding
from kgrun.runtime.checks.names import GUARD
from kgrun.runtime.loaded import LoadedProgram
from kgrun.runtime.memory.plan_types import Placement
from kgrun.runtime.program import Pointer, Program, Step

_CANARY = 0xC5
# With more live buffers than this, only those that a step touches, and those whose life ends, are looked at.
_LOOK_AT_ALL = 64


class Redzones:
    """The canaries of one loaded program, planned with `guard=GUARD`.

    Members of contiguous groups stand side by side and have none.
    """

    def __init__(self, loaded: LoadedProgram) -> None:
        self._loaded, self._program = loaded, loaded.program
        grouped = {index for group in self._program.groups for index in group}
        self._placed = [p for p in loaded.plan.placements if p.buffer not in grouped]

    def start(self) -> None:
        """Fill the canaries of static buffers."""
        for place in self._placed:
            if place.space == "static":
                self._fill(place)

    def before(self, step: Step) -> None:
        """Fill the canaries of buffers whose life begins."""
        for place in self._placed:
            if place.space == "dynamic" and place.first_step == step.index:
                self._fill(place)

    def after(self, step: Step) -> Iterator[Finding]:
        """A finding for each canary that is damaged now; it is mended, so that nobody else is blamed."""
        live = [p for p in self._placed if p.first_step <= step.index <= p.last_step]
        if len(live) > _LOOK_AT_ALL:
            touched = {*step.reads, *step.writes}
            last = len(self._program.steps) - 1
            live = [p for p in live if p.buffer in touched or p.last_step == step.index or step.index == last]
        for place in live:
            finding = self._look(step, place)
            if finding is not None:
                self._fill(place)
                yield finding

    def _zones(self, place: Placement) -> tuple[tuple[int, int], tuple[int, int]]:
        """(address, bytes) before and behind; what rounding leaves free belongs to the second."""
        start = self._loaded.address(Pointer(place.buffer))
        return (start - GUARD, GUARD), (start + place.nbytes, place.aligned - place.nbytes + GUARD)

    def _fill(self, place: Placement) -> None:
        for address, nbytes in self._zones(place):
            self._loaded.device.fill(address, _CANARY, nbytes)

    def _look(self, step: Step, place: Placement) -> Finding | None:
        for side, (address, nbytes) in zip(("before", "behind"), self._zones(place), strict=True):
            content: np.ndarray[Any, Any] = np.empty(nbytes, np.uint8)
            self._loaded.device.download(address, content)
            damaged = np.flatnonzero(content != _CANARY)
            if damaged.size:
                first = int(damaged[0])
                far = nbytes - int(damaged[-1]) if side == "before" else first + 1
                return _finding(self._program, step, place.name, side, far, int(damaged.size))
        return None


def _finding(program: Program, step: Step, tensor: str, side: str, far: int, count: int) -> Finding:
    edge = "start" if side == "before" else "end"
    message = f"{step.name!r} ({step.op}) wrote {side} {tensor!r}: {count} bytes, the nearest {far} from its {edge}"
    where = program.graph.source.place("nodes", program.node_of(step).position)
    return Finding("redzone", message, where, step.name, step.op, tensor, None, count=count)
