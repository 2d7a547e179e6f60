"""Check a program with transfers: whatever a step touches is on the device then, in its latest version (off-02).

It follows version numbers through the steps in list order and knows nothing of how the transfers were planned; what
orders the bytes themselves is `order.check_order`'s to check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kgrun.graphs.errors import InternalError
from kgrun.runtime.memory.offload.records import Home
from kgrun.runtime.program import Program, Step, Transfer
from kgrun.runtime.streams import StreamPlan, plan_streams


def check_residency(program: Program, homes: Sequence[Home]) -> None:
    """InternalError KG102 where a step would find old data or none, or a run not leave what the next one needs."""
    streams = plan_streams(program)
    followed = [_Tensor(program, home, streams) for home in homes]
    of: Mapping[int, _Tensor] = {index: each for each in followed for index in each.home.buffers}
    for step in program.steps:
        if isinstance(step.work, Transfer):
            of[step.work.pointer.buffer].move(step, step.work)
            continue
        for buffer in step.reads:
            if buffer in of and buffer not in step.writes:
                of[buffer].touch(step, buffer)
        for buffer in step.writes:
            if buffer in of:
                of[buffer].touch(step, buffer)
                of[buffer].write(buffer)
    for each in followed:
        each.end()


class _Tensor:
    """Versions of one tensor: the latest, the host's, and that of each buffer that holds it at some time."""

    def __init__(self, program: Program, home: Home, streams: StreamPlan) -> None:
        self.home, self.streams, self.buffers = home, streams, program.buffers
        self.latest = 0
        self.host: int | None = 0 if home.persistent else None
        self.device: dict[int, int] = {} if home.first is None else {home.first: 0}
        self.copied: int | None = None  # the step of the last copy out

    def touch(self, step: Step, buffer: int) -> None:
        fresh = not self.home.persistent and self.latest == 0 and not self.device
        lives = self.buffers[buffer].lives
        alive = any(first <= step.index <= last for first, last in lives)
        if not alive or not (fresh or self.device.get(buffer) == self.latest):
            self._fail(f"{step.name} would not find it on the device")
        if fresh:
            self.device[buffer] = 0

    def write(self, buffer: int) -> None:
        self.latest += 1
        self.device[buffer] = self.latest

    def move(self, step: Step, work: Transfer) -> None:
        buffer = work.pointer.buffer
        if (work.host_offset, work.nbytes) != (self.home.host_offset, self.home.nbytes):
            self._fail(f"{step.name} copies other bytes")
        if work.direction == "out":
            self.touch(step, buffer)
            self.host, self.copied = self.latest, step.index
            return
        late = self.copied is not None and not self.streams.precedes(self.copied, step.index)
        if self.host != self.latest or late:
            self._fail(f"{step.name} would copy old data")
        self.device[buffer] = self.latest

    def end(self) -> None:
        home = self.home
        if home.first is not None and home.first != home.last:
            self._fail("the next run would not find it where it begins")
        if home.last is not None:
            if self.device.get(home.last) != self.latest:
                self._fail("it would not be on the device after the run")
        elif (home.persistent or home.memory_class == "output") and self.host != self.latest:
            self._fail("it would not be on the host after the run")

    def _fail(self, what: str) -> None:
        raise InternalError(
            f"the transfer schedule is wrong: {self.home.name}: {what}",
            code="KG102",
            help="please report this graph; --offload off runs it without transfers",
        )
