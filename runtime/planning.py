"""How a session plans the memory of its program: the user's choices, and the times that offload reckons with."""

from __future__ import annotations

from dataclasses import dataclass

from kgrun.runtime.memory.offload.fit import Request, fit, wants_offload
from kgrun.runtime.memory.offload.records import OffloadMode
from kgrun.runtime.memory.offload.times import PROFILES, DeviceProfile
from kgrun.runtime.memory.plan import MemoryMode, plan_memory
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Program


@dataclass(frozen=True, slots=True)
class Planning:
    """See `plan_memory`; `offload` and `profile` are those of planned offload, the profile by default the device's."""

    memory: MemoryMode = "planned"
    planner: str = "auto"
    memory_limit: int | None = None
    time_limit: float = 2.0
    max_chunk: int | None = None
    guard: int = 0
    offload: OffloadMode = "auto"
    profile: DeviceProfile | None = None

    def plan(self, program: Program) -> tuple[Program, MemoryPlan]:
        """The program that runs, with transfers where it takes them to stay within the limit, and its verified plan.

        Raises:
            UsageError: an unknown planner. DoesNotFit: nothing fits the limit.
        """
        offload = self.offload if self.memory == "planned" else "off"
        if not wants_offload(program, self.memory_limit, offload):
            return program, self._packed(program, limit=self.memory_limit)
        profile = self.profile or PROFILES["cpu" if program.target == "cpu" else "h200"]
        request = Request(lambda made, enough: self._packed(made, enough=enough), self.memory_limit, offload, profile)
        return fit(program, request)

    def _packed(self, program: Program, limit: int | None = None, enough: int | None = None) -> MemoryPlan:
        return plan_memory(
            program, mode=self.memory, planner=self.planner, memory_limit=limit, enough=enough,
            time_limit=self.time_limit, max_chunk=self.max_chunk, guard=self.guard,
        )  # fmt: skip
