"""How a session plans the memory of its program: the user's choices, and the times that offload reckons with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgrun.runtime.memory.offload.fit import plan_within
from kgrun.runtime.memory.offload.records import OffloadMode
from kgrun.runtime.memory.offload.times import DeviceProfile
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
    pool_unit: int | None = None
    offload: OffloadMode = "auto"
    profile: DeviceProfile | None = None

    def plan(self, program: Program) -> tuple[Program, MemoryPlan]:
        """The program that runs, with transfers where it takes them to stay within the limit, and its verified plan.

        Raises:
            UsageError: an unknown planner. DoesNotFit: nothing fits the limit.
        """
        pack = partial(
            plan_memory, mode=self.memory, planner=self.planner, time_limit=self.time_limit,
            max_chunk=self.max_chunk, guard=self.guard, pool_unit=self.pool_unit,
        )  # fmt: skip
        offload = self.offload if self.memory == "planned" else "off"
        return plan_within(program, pack, self.memory_limit, offload, self.profile)
