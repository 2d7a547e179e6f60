"""How long steps and transfers take, before anything ran: a device profile, or an earlier report of the same graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kgrun.graphs.errors import UsageError
from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.offload.records import Rates
from kgrun.runtime.program import Program, Transfer


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What is known of a device.

    Attributes:
        bytes_per_s, flops_per_s: peaks, for steps whose time is not known.
        launch_ns: what a step takes at least.
        step_ns: measured times by the step's name.
    """

    name: str
    bytes_per_s: float
    flops_per_s: float
    launch_ns: float
    rates: Rates
    step_ns: Mapping[str, float] = field(default_factory=dict)


Moved = list[tuple[int, int]]  # bytes and nanoseconds of each transfer

# Measured with pinned memory: an H200 copies 55 GB/s each way at once, 4.24 TB/s on the device; float32 multiply-adds.
PROFILES = {
    "h200": DeviceProfile("h200", 4.24e12, 6.0e13, 870.0, Rates(55e9, 55e9, 2_000.0)),
    "cpu": DeviceProfile("cpu", 1.0e10, 5.0e9, 2_000.0, Rates(8e9, 8e9, 1_000.0)),
}


def step_times(program: Program, profile: DeviceProfile) -> list[float]:
    """Nanoseconds of each step: measured where the profile has its name, else by bytes and operations (roofline)."""
    found = []
    for step in program.steps:
        known = profile.step_ns.get(step.name)
        if known is None:
            flops, nbytes = step.flops or 0, step.nbytes or 0
            known = profile.launch_ns + max(flops * 1e9 / profile.flops_per_s, nbytes * 1e9 / profile.bytes_per_s)
        found.append(float(known))
    return found


def named_profile(name: str) -> DeviceProfile:
    """A built-in profile; UsageError KG260 for an unknown name."""
    if name not in PROFILES:
        help = f"profiles: {', '.join(PROFILES)}, or a report of `kgrun execute --json`"
        raise UsageError(f"there is no device profile {name!r}", code="KG260", help=help)
    return PROFILES[name]


def report_profile(document: Mapping[str, Any], name: str) -> DeviceProfile:
    """The profile that a report of `kgrun execute --json` gives: medians of its kernels, rates where it has them.

    Raises:
        UsageError: KG260, the document is no such report, or holds what no run gives.
    """

    def number(value: Any, what: str) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18:
            return float(value)
        raise UsageError(f"{name} is no report of `kgrun execute --json`: {what} is {value!r:.40}", code="KG260")

    kernels = document.get("kernels")
    if not isinstance(kernels, list):
        raise UsageError(f"{name} is no report of `kgrun execute --json`", code="KG260", help="it has no `kernels`")
    base = PROFILES["cpu" if _member(document, "device", "kind") == "cpu" else "h200"]
    times = {}
    moved: dict[str, Moved] = {"H2D": [], "D2H": []}
    for row in kernels:
        median = _member(row, "time_ns", "median")
        if median is None or not isinstance(row.get("name"), str):
            continue
        took = number(median, f"the median of {row['name']!r:.40}")
        if row.get("op") in ("H2D", "D2H") and row.get("nbytes") is not None:
            moved[row["op"]].append((int(number(row["nbytes"], f"`nbytes` of {row['name']!r:.40}")), int(took)))
        else:
            times[row["name"]] = took
    peak = document.get("roofline")
    peak = peak if isinstance(peak, dict) else {}
    rates = _measured_rates(moved["H2D"], moved["D2H"], base)
    return DeviceProfile(
        name,
        number(peak.get("bytes_per_s") or base.bytes_per_s, "`roofline.bytes_per_s`"),
        number(peak.get("flops_per_s") or base.flops_per_s, "`roofline.flops_per_s`"),
        base.launch_ns,
        rates,
        times,
    )


def measured_profile(program: Program, medians: Mapping[int, int], base: DeviceProfile) -> DeviceProfile:
    """`base` with the median times of a program's steps, by index, and the rates of its transfers (S107)."""
    times = dict(base.step_ns)
    moved: dict[str, Moved] = {"in": [], "out": []}
    for step in program.steps:
        if step.index not in medians:
            continue
        if isinstance(step.work, Transfer):
            moved[step.work.direction].append((step.work.nbytes, medians[step.index]))
        else:
            times[step.name] = float(medians[step.index])
    rates = _measured_rates(moved["in"], moved["out"], base)
    return DeviceProfile("measured", base.bytes_per_s, base.flops_per_s, base.launch_ns, rates, times)


def _measured_rates(inward: Moved, outward: Moved, base: DeviceProfile) -> Rates:
    return Rates(
        _rate(inward) or base.rates.in_bytes_per_s,
        _rate(outward) or base.rates.out_bytes_per_s,
        base.rates.latency_ns,
    )


def _rate(moved: Moved) -> float | None:
    """Bytes a second of the larger transfers: small ones tell of latency."""
    large = [(nbytes, ns) for nbytes, ns in moved if nbytes >= 1 << 20 and ns > 0]
    return sum(n for n, _ in large) * 1e9 / sum(ns for _, ns in large) if large else None


def _member(record: Any, *keys: str) -> Any:
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    return record
