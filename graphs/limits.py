"""What a launch may ask of each GPU architecture, and the check of one launch against it. Pure data, no device.

Figures: CUDA C++ Programming Guide, appendix "Compute Capabilities".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kgrun.graphs.errors import PathPart, UsageError, did_you_mean
from kgrun.graphs.records import dataclass

KIB = 1024
DEFAULT_ARCH = "sm_90"
WARP = 32
_AXES = "xyz"
_REGISTER_UNIT = 256  # registers are handed out to warps in units of 256


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """Limits of one architecture.

    Attributes:
        grid, block: largest extent along x, y, z.
        threads: largest product of the block's extents.
        shared_default: bytes of shared memory a block has without asking.
        shared_optin: bytes a block may ask for, static and dynamic together.
        registers_per_block, registers_per_thread: 32-bit registers.
        cluster: most blocks in a cluster that every device of the architecture takes; 0 where there are no clusters.
    """

    arch: str
    shared_optin: int
    cluster: int = 0
    grid: tuple[int, int, int] = (2**31 - 1, 65_535, 65_535)
    block: tuple[int, int, int] = (1_024, 1_024, 64)
    threads: int = 1_024
    shared_default: int = 48 * KIB
    registers_per_block: int = 65_536
    registers_per_thread: int = 255


LIMITS: dict[str, LaunchLimits] = {
    row.arch: row
    for row in (
        LaunchLimits("sm_75", 64 * KIB),
        LaunchLimits("sm_80", 163 * KIB),
        LaunchLimits("sm_86", 99 * KIB),
        LaunchLimits("sm_87", 163 * KIB),
        LaunchLimits("sm_88", 99 * KIB),
        LaunchLimits("sm_89", 99 * KIB),
        LaunchLimits("sm_90", 227 * KIB, cluster=8),
        LaunchLimits("sm_100", 227 * KIB, cluster=8),
        LaunchLimits("sm_103", 227 * KIB, cluster=8),
        LaunchLimits("sm_110", 227 * KIB, cluster=8),
        LaunchLimits("sm_120", 99 * KIB, cluster=8),
        LaunchLimits("sm_121", 99 * KIB, cluster=8),
    )
}

Finding = tuple[str, tuple[PathPart, ...]]


def limits_of(arch: str = DEFAULT_ARCH) -> LaunchLimits:
    """The limits of `arch` ("sm_90", "sm_90a", "90"); UsageError KG221 for one that is not known.

    A newer minor revision than any listed takes its generation's figures.
    """
    name = "sm_" + arch.removeprefix("sm_").removeprefix("compute_").rstrip("af")
    if name in LIMITS:
        return LIMITS[name]
    same = [row for row in LIMITS if row[:-1] == name[:-1]]
    if not same:
        known = ", ".join(LIMITS)
        raise UsageError(
            f"unknown architecture {arch!r}", code="KG221", help=did_you_mean(name, LIMITS) or f"known: {known}"
        )
    return replace(LIMITS[same[-1]], arch=name)


def check_launch(
    limits: LaunchLimits,
    grid: Sequence[int],
    block: Sequence[int],
    static_shared: int = 0,
    dynamic_shared: int = 0,
    registers: int = 0,
    cluster: Sequence[int] | None = None,
) -> list[Finding]:
    """Everything in a launch that `limits` forbid, each with its path relative to the node, for example ("grid", 2).

    Args:
        static_shared, dynamic_shared: bytes a block.
        registers: a thread; 0 where not known.
    """
    found: list[Finding] = []
    for field, extents, most in (("grid", grid, limits.grid), ("block", block, limits.block)):
        for axis, extent in enumerate(extents):
            name = f"max_{field}_dim_{_AXES[axis]}"
            if extent < 1:
                found.append((f"{field}[{axis}]={extent} < 1", (field, axis)))
            elif extent > most[axis]:
                found.append((f"{field}[{axis}]={extent} > {most[axis]} ({name})", (field, axis)))
    threads = _product(block)
    if threads > limits.threads:
        text = "×".join(map(str, block))
        found.append((f"block {text}={threads} threads > {limits.threads} (max_threads_per_block)", ("block",)))
    found += _shared(limits, static_shared, dynamic_shared)
    found += _registers(limits, threads, registers)
    return found + (_cluster(limits, grid, cluster) if cluster is not None else [])


def _shared(limits: LaunchLimits, static: int, dynamic: int) -> list[Finding]:
    if dynamic < 0:
        return [(f"shared={dynamic} < 0", ("shared",))]
    if static > limits.shared_default:
        text = f"{static} bytes of static shared memory > {limits.shared_default} (max_shared_memory_per_block)"
        return [(f"{text}; more has to be dynamic", ("shared",))]
    if static + dynamic <= limits.shared_optin:
        return []
    asked = f"shared={dynamic}" + (f" + {static} static = {static + dynamic}" if static else "")
    return [(f"{asked} > {limits.shared_optin} (max_shared_memory_per_block_optin of {limits.arch})", ("shared",))]


def _registers(limits: LaunchLimits, threads: int, registers: int) -> list[Finding]:
    if registers > limits.registers_per_thread:
        return [(f"registers={registers} > {limits.registers_per_thread} (max_registers_per_thread)", ("block",))]
    warps = -(-threads // WARP)
    total = warps * -(-registers * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    if total <= limits.registers_per_block or threads > limits.threads:
        return []
    text = f"{threads} threads × {registers} registers = {total} > {limits.registers_per_block}"
    return [(f"{text} (max_registers_per_block)", ("block",))]


def _cluster(limits: LaunchLimits, grid: Sequence[int], cluster: Sequence[int]) -> list[Finding]:
    if not limits.cluster:
        return [(f"{limits.arch} has no thread block clusters", ("cluster",))]
    found: list[Finding] = []
    for axis, extent in enumerate(cluster):
        if extent < 1:
            found.append((f"cluster[{axis}]={extent} < 1", ("cluster", axis)))
        elif axis < len(grid) and grid[axis] % extent:
            found.append((f"grid[{axis}]={grid[axis]} is no multiple of cluster[{axis}]={extent}", ("cluster", axis)))
    if not found and _product(cluster) > limits.cluster:
        text = "×".join(map(str, cluster))
        found.append((f"cluster {text}={_product(cluster)} blocks > {limits.cluster} (max_cluster_size)", ("cluster",)))
    return found


def _product(extents: Sequence[int]) -> int:
    total = 1
    for extent in extents:
        total *= extent
    return total
