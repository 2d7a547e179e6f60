"""How a session plans the memory of its program: the user's choices, and the times that offload reckons with."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from kgrun.graphs.errors import DoesNotFit, UsageError
from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.offload.marks import marked_tensors
from kgrun.runtime.memory.plan import plan_memory
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Program

if TYPE_CHECKING:
    from kgrun.runtime.memory.offload.records import OffloadMode
    from kgrun.runtime.memory.offload.times import DeviceProfile
    from kgrun.runtime.memory.plan_types import MemoryMode


@dataclass(frozen=True, slots=True)
class Planning:
    """See `plan_memory`; `offload` and `profile` are those of planned offload, the profile by default the device's.

    Attributes:
        stays: why every tensor stays on the device; None where they may move.
    """

    memory: MemoryMode = "planned"
    planner: str = "auto"
    memory_limit: int | None = None
    time_limit: float = 2.0
    max_chunk: int | None = None
    guard: int = 0
    pool_unit: int | None = None
    offload: OffloadMode = "auto"
    profile: DeviceProfile | None = None
    stays: str | None = None

    def plan(self, program: Program) -> tuple[Program, MemoryPlan]:
        """The program that runs, with transfers where it takes them to stay within the limit, and its verified plan.

        Raises:
            UsageError: an unknown planner, or moves asked for where every tensor stays.
            DoesNotFit: nothing fits the limit.
        """
        stays = self.stays or (None if self.memory == "planned" else f"--memory {self.memory}")
        offload = offload_where(stays, self.offload)
        pack = partial(
            plan_memory, mode=self.memory, planner=self.planner, time_limit=self.time_limit,
            max_chunk=self.max_chunk, guard=self.guard, pool_unit=self.pool_unit,
        )  # fmt: skip
        if self.memory_limit is None and not marked_tensors(program):
            return program, pack(program)
        from kgrun.runtime.memory.offload.fit import plan_within

        try:
            return plan_within(program, pack, self.memory_limit, offload, self.profile)
        except DoesNotFit as error:
            if stays:
                error.help = f"{error.help}; {stays} keeps all tensors on the device, else some could wait on the host"
            raise


def offload_where(stays: str | None, offload: OffloadMode) -> OffloadMode:
    """The mode that holds where `stays` keeps every tensor on the device, None being nothing.

    Raises:
        UsageError: moves were asked for there.
    """
    if stays and offload in ("manual", "seeds"):
        raise UsageError(f"--offload {offload} moves tensors, and {stays} keeps all on the device", code="KG240")
    return "off" if stays else offload


def check_fusable(fuse: bool, checks: Collection[str], allow_skip: bool) -> None:
    """UsageError where what looks at every tensor, or leaves kernels out, is asked for beside fused kernels."""
    asked = "--check" if checks else "--allow-skip" if allow_skip else None
    if fuse and asked:
        raise UsageError(f"{asked} needs every kernel by itself, and --fuse joins some", code="KG240")


def why_all_stay(checks: Collection[str], allow_skip: bool, shared: bool) -> str | None:
    """What of a session's settings keeps every tensor on the device."""
    if checks:
        return "--check"
    if allow_skip:
        return "--allow-skip"
    return "memory shared by graphs or sizes" if shared else None
