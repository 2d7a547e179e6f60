"""Put a schedule into the program: a buffer for each residency, a transfer step for each copy.

Transfers stand where the simulation has them: a copy out right before the step that waits for it, since until then its
bytes are taken; a copy in right before the first step beside which it may run. So lives in list order are those of the
simulation, and the planner packs them like any others: an absence is a hole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.alignment import held_bytes
from kgrun.runtime.memory.offload.records import Home, Move, Problem, Schedule, Stay, Tensor, TransferRow
from kgrun.runtime.memory.offload.stays import stays
from kgrun.runtime.pointers import moved
from kgrun.runtime.program import (
    Pointer,
    Program,
    Step,
    Transfer,
    Work,
)

IN, OUT = "h2d", "d2h"  # the streams of the two directions
Transfers = dict[tuple[int, int | None, str], int]  # position by tensor, the stay before the absence, direction


@dataclass(frozen=True, slots=True)
class Applied:
    """A program with transfers, not yet ordered by the addresses they use.

    Attributes:
        rows: of the transfers, in issue order.
        dropped: bytes that leave without a copy.
    """

    program: Program
    homes: tuple[Home, ...]
    rows: tuple[TransferRow, ...]
    host_bytes: int
    dropped: int


@dataclass(slots=True)
class _Mover:
    """One tensor that comes and goes: its stays and the buffers they have."""

    tensor: Tensor
    stays: list[Stay]
    buffers: list[int]
    host_offset: int


def apply(program: Program, problem: Problem, schedule: Schedule, *, late: bool = False) -> Applied:
    """`program` with the schedule's transfers in it. Outputs get their bytes only when they are first written.

    Args:
        late: a copy in waits for the step before which it is scheduled, though its bytes may be free earlier.
    """
    return _Building(program, problem, schedule, late).build()


class _Building:
    """Collects buffers and steps of the new program."""

    def __init__(self, program: Program, problem: Problem, schedule: Schedule, late: bool) -> None:
        self.program, self.problem, self.schedule, self.late = program, problem, schedule, late
        self.buffers = list(program.buffers)
        self.host_bytes = 0
        self.movers: dict[int, _Mover] = {}  # by tensor
        self.at: list[dict[int, int]] = [{} for _ in program.steps]  # old buffer -> new one, for each old step
        moves: dict[int, list[Move]] = {}
        for move in schedule.moves:
            moves.setdefault(move.part.tensor, []).append(move)
        for index, found in moves.items():
            self.movers[index] = self._mover(problem.tensors[index], found)

    def _mover(self, tensor: Tensor, moves: list[Move]) -> _Mover:
        residencies = _stays(tensor, moves)
        buffer = self.program.buffers[tensor.buffer]
        numbers = [tensor.buffer]
        wrapped = tensor.persistent and not residencies[0].comes
        for number in range(1, len(residencies)):
            if wrapped and number == len(residencies) - 1:
                numbers.append(tensor.buffer)  # stays over the end of the run, so it comes back to the same bytes
                continue
            numbers.append(len(self.buffers))
            name = f"{buffer.name}@{number + 1}"
            self.buffers.append(replace(buffer, index=len(self.buffers), name=name))
        offset = self.host_bytes
        self.host_bytes += held_bytes(tensor.nbytes)
        for stay, number in zip(residencies, numbers, strict=True):
            for touch in stay.touches:
                self.at[touch][tensor.buffer] = number
        return _Mover(tensor, residencies, numbers, offset)

    def build(self) -> Applied:
        order = self._order()
        position = {step: i for i, (step, _) in enumerate(order) if step is not None}
        transfers: Transfers = {}
        for index, (_, move) in enumerate(order):
            if move is not None:
                transfers[move[0].part.tensor, move[0].part.before, move[1]] = index
        steps = []
        rows = []
        for index, (old, move) in enumerate(order):
            if old is not None:
                step = self.program.steps[old]
                at = self.at[old]
                steps.append(
                    replace(
                        step,
                        index=index,
                        work=remapped(step.work, at) if at else step.work,
                        reads=tuple(at.get(b, b) for b in step.reads),
                        writes=tuple(at.get(b, b) for b in step.writes),
                        after=tuple(position[b] for b in step.after),
                    )
                )
            else:
                assert move is not None
                steps.append(self._transfer(index, *move, transfers, position))
                rows.append(self._row(steps[-1], *move))
        self._set_lives(position, transfers, len(order))
        homes = tuple(self._home(mover) for mover in self.movers.values())
        slots = self._slots()
        made = replace(self.program, buffers=tuple(self.buffers), steps=tuple(steps), slots=slots)
        dropped = sum(
            self.problem.tensors[m.part.tensor].nbytes
            for m in self.schedule.moves
            if m.part.ready is None and m.part.before is not None
        )
        return Applied(made, homes, tuple(rows), self.host_bytes, dropped)

    def _order(self) -> list[tuple[int | None, tuple[Move, str] | None]]:
        """Old steps and transfers in issue order."""
        outs: dict[int, list[Move]] = {}
        ins: dict[int, list[Move]] = {}
        for move in self.schedule.moves:
            if move.out_ns is not None:
                outs.setdefault(move.released, []).append(move)
            if move.in_ns is not None:
                ins.setdefault(move.fetched, []).append(move)
        order: list[tuple[int | None, tuple[Move, str] | None]] = []
        for step in range(len(self.program.steps) + 1):
            order += [(None, (m, OUT)) for m in sorted(outs.get(step, ()), key=lambda m: m.out_ns or (0.0, 0.0))]
            order += [(None, (m, IN)) for m in sorted(ins.get(step, ()), key=lambda m: m.in_ns or (0.0, 0.0))]
            if step < len(self.program.steps):
                order.append((step, None))
        return order

    def _transfer(self, index: int, move: Move, kind: str, transfers: Transfers, position: Mapping[int, int]) -> Step:
        part = move.part
        mover = self.movers[part.tensor]
        nbytes = mover.tensor.nbytes
        number = part.before if kind == OUT else part.after
        assert number is not None
        buffer = mover.buffers[number]
        neighbour = mover.stays[number].touches[-1 if kind == OUT else 0]
        after: set[int] = set()
        if kind == IN:  # the host has the data once the last copy out has ended
            copied = [transfers.get((part.tensor, n, OUT), index) for n in range(number)]
            after.update(sorted(i for i in copied if i < index)[-1:])
            if self.late and move.fetched:
                after.add(position[move.fetched - 1])
        return Step(
            index=index,
            name=f"{self.buffers[buffer].name}.{'out' if kind == OUT else 'in'}",
            node=self.program.steps[neighbour].node,
            op="D2H" if kind == OUT else "H2D",
            stream=self.program.steps[min(neighbour, len(self.program.steps) - 1)].stream,
            work=Transfer("out" if kind == OUT else "in", Pointer(buffer), mover.host_offset, nbytes),
            reads=(buffer,) if kind == OUT else (),
            writes=() if kind == OUT else (buffer,),
            after=tuple(sorted(after)),
            nbytes=nbytes,
        )

    def _row(self, step: Step, move: Move, kind: str) -> TransferRow:
        part, steps = move.part, self.program.steps
        times = move.out_ns if kind == OUT else move.in_ns
        assert times is not None
        return TransferRow(
            step=step.index,
            name=step.name,
            tensor=self.problem.tensors[part.tensor].name,
            direction="out" if kind == OUT else "in",
            nbytes=step.nbytes or 0,
            after=steps[part.start - 1].name if part.before is not None else None,
            before=steps[part.end].name if part.end < len(steps) else None,
            start_ns=round(times[0]),
            end_ns=round(times[1]),
        )

    def _set_lives(self, position: Mapping[int, int], transfers: Transfers, steps: int) -> None:
        """Say of each buffer that comes or goes, and of each output, in which steps it holds data."""
        for index, tensor in enumerate(self.problem.tensors):
            mover = self.movers.get(index)
            if mover is None:
                if tensor.wanted:
                    self._live(tensor.buffer, [(position[tensor.touches[0]], steps - 1)])
                continue
            spans: dict[int, list[tuple[int, int]]] = {}
            for number, (stay, buffer) in enumerate(zip(mover.stays, mover.buffers, strict=True)):
                before = number - 1 if number else None
                first = position[stay.touches[0]]
                if stay.comes:
                    first = transfers[index, before, IN]
                elif tensor.persistent:
                    first = 0
                last = position[stay.touches[-1]]
                if stay.goes:
                    last = max(last, transfers.get((index, number, OUT), -1))
                elif tensor.persistent or tensor.wanted:
                    last = steps - 1
                spans.setdefault(buffer, []).append((first, last))
            for buffer, found in spans.items():
                self._live(buffer, found)

    def _live(self, buffer: int, spans: list[tuple[int, int]]) -> None:
        self.buffers[buffer] = replace(self.buffers[buffer], lives=tuple(spans))

    def _home(self, mover: _Mover) -> Home:
        tensor, found = mover.tensor, mover.stays
        buffer = self.program.buffers[tensor.buffer]
        lasts = not found[-1].goes and (tensor.persistent or tensor.wanted)
        return Home(
            name=buffer.name,
            tensors=buffer.tensors,
            memory_class=str(buffer.memory_class),
            host_offset=mover.host_offset,
            nbytes=tensor.nbytes,
            first=None if found[0].comes or not tensor.persistent else mover.buffers[0],
            last=mover.buffers[-1] if lasts else None,
            persistent=tensor.persistent,
            updated=bool(tensor.writes),
            buffers=tuple(mover.buffers),
        )

    def _slots(self) -> dict[str, Pointer]:
        """Tensors where they are last: what is read after the run is read there."""
        last = {mover.tensor.buffer: mover.buffers[-1] for mover in self.movers.values()}
        slots = self.program.slots.items()
        return {name: Pointer(last.get(p.buffer, p.buffer), p.offset) for name, p in slots}


def _stays(tensor: Tensor, moves: Sequence[Move]) -> list[Stay]:
    left = {tensor.touches.index(m.part.start - 1) for m in moves if m.part.before is not None}
    return stays(tensor, left)


def remapped(work: Work, at: Mapping[int, int]) -> Work:
    """`work` with its addresses in other buffers."""
    return moved(work, lambda pointer: Pointer(at.get(pointer.buffer, pointer.buffer), pointer.offset))
