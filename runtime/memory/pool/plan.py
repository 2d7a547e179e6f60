"""A memory plan by pool: the addresses of a dry run, with blocks no larger than they need to be.

Under a limit the dry run is tried in several ways until one fits, which costs no kernel: blocks of the unit, cut to
what they hold; blocks that never exceed the room; one block that grows at its end alone; one block of all the room.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from kgrun.graphs.errors import DoesNotFit, UsageError
from kgrun.runtime.memory.alignment import ALIGNMENT, Padding, held_bytes
from kgrun.runtime.memory.packing import Packing, PackOptions, Problem, lower_bound
from kgrun.runtime.memory.plan_types import PoolAttempt, PoolPlan
from kgrun.runtime.memory.pool.blocks import UNIT
from kgrun.runtime.memory.pool.dry_run import DryRun, StepFailed, Workload, dry_run, held_at
from kgrun.runtime.memory.pool.explain import details, report_lines
from kgrun.runtime.memory.solve import solve
from kgrun.runtime.program import Buffer, MemoryClass, Program
from kgrun.runtime.streams import plan_streams

_BOUNDLESS = 1 << 61
# How long planned mode may search for the number that the error gives.
_ADVICE_SECONDS = 0.2


def check_pool_options(mode: str, planner: str, max_chunk: int | None, unit: int | None) -> None:
    """UsageError KG240 where options of planned mode and of the pool are mixed."""
    if mode == "pool" and planner != "auto":
        raise UsageError("a pool places by best fit and takes no planner", code="KG240", help="leave --planner out")
    if mode == "pool" and max_chunk is not None:
        raise UsageError("a pool's unit sets its blocks", code="KG240", help="use --pool-unit")
    if mode != "pool" and unit is not None:
        raise UsageError("only a pool has a unit to grow by", code="KG240", help="give --memory pool too")


def workload(
    program: Program,
    buffers: Sequence[Buffer],
    groups: Sequence[Sequence[int]],
    padding: Padding,
    guard: int,
    *,
    guard_all: bool,
) -> Workload:
    """What a dry run of `program` allocates; `guard_all` puts the guard around every buffer."""
    several = len({step.stream for step in program.steps}) > 1
    guarded = (b.index for b in buffers if guard_all or b.memory_class is MemoryClass.COMMUNICATION)
    streams = plan_streams(program) if several else None
    return Workload(program, buffers, groups, padding, guard, frozenset(guarded), streams)


def plan_pool(
    work: Workload, problem: Problem, *, static_bytes: int = 0, limit: int | None = None, unit: int | None = None
) -> tuple[Packing, PoolPlan]:
    """Offsets as if the blocks stood one behind the other, and what the pool has to say.

    Args:
        problem: the same buffers as a packing problem, which the result is verified against.
        static_bytes, limit: what static memory takes of the limit.
        unit: bytes to grow by, rounded up to 512.

    Raises:
        DoesNotFit: KG401 with what is needed, what there is, fragments and holders; no attempt fits.
    """
    if limit is not None and static_bytes > limit:
        limit = None  # no dynamic memory is to blame; the caller says so
    step = held_bytes(UNIT if unit is None else max(unit, 1))
    room = _BOUNDLESS if limit is None else max(limit - static_bytes, 0)
    attempts: list[PoolAttempt] = []
    failures: list[StepFailed] = []
    for way, growth, within in _ways(step, room):
        try:
            found = dry_run(work, within, growth)
        except StepFailed as error:
            attempts.append(PoolAttempt(way, min(growth, room), error.step, error.cause.name))
            failures.append(error)
            continue
        fits = sum(_trimmed(found)) <= room
        attempts.append(PoolAttempt(way, min(growth, room), None, None, fits))
        if fits:
            held = held_at(work, within, growth, found.peak_step) if found.peak_step is not None else []
            return _packing(work, problem, found), _pool_plan(found, held, step, attempts)
    assert limit is not None  # without a limit the first way fits
    raise _does_not_fit(work, problem, failures[-1], attempts, static_bytes, limit, step)


def _ways(unit: int, room: int) -> Iterator[tuple[str, int, int]]:
    """Ways to grow: name, unit, and the room to run in, where boundless the blocks are looked at afterwards."""
    yield "units", unit, _BOUNDLESS
    if room < _BOUNDLESS:
        yield "units within the limit", unit, room
        if unit < room:
            yield "one growing block", _BOUNDLESS, _BOUNDLESS
            yield "one block", room - room % ALIGNMENT, room


def _trimmed(found: DryRun) -> list[int]:
    """Bytes of each block up to the end of its highest buffer."""
    return [found.ends[block] - block for block in found.blocks]


def _packing(work: Workload, problem: Problem, found: DryRun) -> Packing:
    blocks = list(found.blocks)
    sizes = _trimmed(found)
    starts = list(accumulate(sizes, initial=0))
    offsets = array("q")
    for buffer in work.buffers:
        address = found.addresses[buffer.index]
        number = bisect_right(blocks, address) - 1
        offsets.append(starts[number] + address - blocks[number])
    height, bound = sum(sizes), lower_bound(problem)
    return Packing(offsets, height, bound, height == bound, "pool", "issue", 0, 0.0)


def _pool_plan(found: DryRun, held: Sequence[tuple[int, int]], unit: int, attempts: Sequence[PoolAttempt]) -> PoolPlan:
    return PoolPlan(
        unit=unit,
        blocks=tuple(_trimmed(found)),
        reserved_bytes=found.final.total,
        peak_used_bytes=found.peak_used,
        peak_idle=tuple(sorted(_idle(found, held), reverse=True)),
        peak_step=found.peak_step,
        kept=tuple(holder.name for holder in found.left),
        attempts=tuple(attempts),
    )


def _idle(found: DryRun, held: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Sizes of the gaps between the pieces in use, inside the trimmed blocks."""
    for block in found.blocks:
        at, end = block, found.ends[block]
        for start, size in [piece for piece in held if block <= piece[0] < end] + [(end, 0)]:
            if start > at:
                yield start - at
            at = start + size


def _does_not_fit(
    work: Workload,
    problem: Problem,
    failed: StepFailed,
    attempts: Sequence[PoolAttempt],
    static_bytes: int,
    limit: int,
    unit: int,
) -> DoesNotFit:
    cause = failed.cause
    smallest = static_bytes + min(sum(_trimmed(dry_run(work, _BOUNDLESS, each))) for each in {unit, _BOUNDLESS})
    packed = static_bytes + solve(problem, PackOptions(time_limit=_ADVICE_SECONDS)).height
    lines = [
        f"the pool has no room within {limit:,} bytes, {static_bytes:,} of them static, "
        f"for {cause.name!r}" + (f" at step {failed.step!r}" if failed.step is not None else ""),
        *report_lines(cause),
    ]
    help = f"the pool fits within {smallest:,} bytes"
    if packed < smallest:
        help += f"; `--memory planned` within {packed:,}"
    return DoesNotFit(
        "\n".join(lines),
        code="KG401",
        help=help,
        details=details(cause, failed.step)
        | {
            "limit_bytes": limit,
            "static_bytes": static_bytes,
            "smallest_feasible_limit_bytes": smallest,
            "planned_bytes": packed,
            "attempts": [{"way": each.way, "unit_bytes": each.unit, "step": each.step} for each in attempts],
        },
    )
