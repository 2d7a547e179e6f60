"""Synthetic times with known noise, and reports made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kgrun.runtime.diff.document import Times
from kgrun.runtime.statistics import time_stats

Array = np.ndarray[Any, Any]
Noise = Callable[[np.random.Generator, int], Array]
BASE = 20_000  # nanoseconds


def lognormal(cv: float) -> Noise:
    """Independent lognormal factors."""
    return lambda rng, n: np.exp(rng.normal(0, cv, n))


def bimodal(distance: float, part: float) -> Noise:
    """Two modes, `distance` apart; `part` of the times lie in the upper one."""
    return lambda rng, n: (1 + distance * (rng.random(n) < part)) * np.exp(rng.normal(0, 0.01, n))


def spikes(part: float) -> Noise:
    """`part` of the times are three times as long."""
    return lambda rng, n: np.exp(rng.normal(0, 0.03, n)) * (1 + 2 * (rng.random(n) < part))


def ramp(most: float) -> Noise:
    """A steady drift of up to ±`most` from the first time to the last, its slope another one in each run."""
    return lambda rng, n: (1 + most * rng.uniform(-1, 1) * np.linspace(0, 1, n)) * np.exp(rng.normal(0, 0.02, n))


def waves(height: float) -> Noise:
    """Slow waves of random phase and length."""
    return lambda rng, n: (
        (1 + height * np.sin(rng.uniform(0, 6.28) + np.linspace(0, 6.28 * rng.uniform(0.5, 2), n)))
        * np.exp(rng.normal(0, 0.02, n))
    )


def correlated(rho: float, deviation: float) -> Noise:
    """Each time depends on the one before: an AR(1) process in its stationary state."""

    def make(rng: np.random.Generator, n: int) -> Array:
        values = [rng.normal(0, deviation)]
        for step in rng.normal(0, deviation * (1 - rho * rho) ** 0.5, n - 1):
            values.append(rho * values[-1] + step)
        return 1 + np.array(values)

    return make


def times(factors: Array, *, samples: bool = True) -> Times:
    """Times of BASE × `factors` nanoseconds, with or without the samples."""
    values = np.maximum(np.rint(BASE * factors), 0).astype(np.int64).tolist()
    stats = time_stats(values)
    assert stats is not None
    return Times(stats, tuple(values) if samples else ())


def stats_fields(values: Sequence[int]) -> dict[str, Any]:
    """The `time_ns` object of a report."""
    stats = time_stats(values)
    assert stats is not None
    return {name: getattr(stats, name) for name in stats.__dataclass_fields__}


def kernel(name: str, values: Sequence[int] | None, op: str = "Relu", **more: Any) -> dict[str, Any]:
    """One row of a report's kernels; None: not timed."""
    timed = {"time_ns": None} if values is None else {"time_ns": stats_fields(values), "samples_ns": list(values)}
    return {"name": name, "op": op, "stream": "compute", "method": "stream events", **timed, **more}


def steady(ns: int, count: int = 30) -> list[int]:
    """Times around `ns`, 1 % apart at most."""
    return [ns + (ns // 100) * ((at * 7) % 11 - 5) // 5 for at in range(count)]


def report(kernels: Sequence[Mapping[str, Any]], **changes: Any) -> dict[str, Any]:
    """An `execute` document of these kernels; the total is their sum and 1 µs."""
    timed = [row["samples_ns"] for row in kernels if row.get("samples_ns")]
    totals = [sum(values) + 1000 for values in zip(*timed, strict=False)] or steady(1000)
    memory = {"static_bytes": 4096, "dynamic_bytes": 8192, "peak_bytes": 12288, "lower_bound_bytes": 8192}
    device = {
        "kind": "cuda",
        "name": "GPU",
        "arch": "sm_90",
        "total_memory_bytes": 1 << 30,
        "versions": {"driver": "1"},
    }
    return {
        "schema_version": 1, "ok": True, "kgrun": "0.1.0", "graph": {"name": "g", "file": "g.yaml"}, "dims": {"n": 8},
        "target": "cuda", "device": device, "iterations": len(totals), "kernels": [dict(row) for row in kernels],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [8], "sha256": "0" * 64}],
        "total_ns": stats_fields(totals), "total_samples_ns": totals, "memory": memory,
    } | changes  # fmt: skip
