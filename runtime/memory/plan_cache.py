"""Offsets of large packing problems kept on disk (S62): keyed by the problem, verified after a load, never an error.

An entry is used only where the verifier finds it sound for the problem at hand and its height is what it says. A
missing, broken or outdated entry is a miss: the problem is packed again and the entry rewritten.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from kgrun.graphs.records import dataclass
from kgrun.graphs.whole_files import replacing
from kgrun.runtime.memory.packing.problem import Problem
from kgrun.runtime.memory.packing.result import Packing, PackOptions
from kgrun.runtime.memory.packing.verify import verify
from kgrun.runtime.memory.plan_types import DEFAULT_MIN_KERNELS

PLAN_FORMAT = 1  # of the entries and of what the packing makes of a problem; raise it when either changes


@dataclass(frozen=True, slots=True)
class CacheOutcome:
    """A packing and where it came from.

    Attributes:
        status: "hit"; "miss" (packed and stored); "stale" (an entry was there but did not hold); "off" (too small).
        note: for the log, one line; None for "off".
    """

    packing: Packing
    status: Literal["hit", "miss", "stale", "off"]
    note: str | None = None


def plan_key(problem: Problem, options: PackOptions) -> str:
    """The hex sha256 of everything that decides offsets. Names do not: equal problems of two graphs share an entry."""
    digest = hashlib.sha256(f"kgrun-plan-{PLAN_FORMAT}".encode())
    p = problem
    for column in (p.lowers, p.uppers, p.sizes, p.spaces, p.alignment):
        if column is None or isinstance(column, int):
            digest.update(f"|{column}".encode())
        else:
            data = array("q", column).tobytes()
            digest.update(f"|{len(data)}:".encode() + data)
    sparse: dict[str, object] = {
        "pad": p.pad,
        "extra_intervals": sorted((i, [list(span) for span in spans]) for i, spans in p.extra_intervals.items()),
        "fixed": sorted(p.fixed.items()),
        "hint": sorted(p.hint.items()),
        "groups": [[list(g.members), g.before, g.between, g.after] for g in p.group_list],
        "aliases": sorted((child, *parent) for child, parent in p.aliases.items()),
        "conflicts": None if p.conflicts is None else _pairs(p.conflicts),
        "extra_conflicts": _pairs(p.extra_conflicts),
        "persistent": sorted(p.persistent),
        "capacity": sorted(p.capacity.items()),
        "max_chunk": p.max_chunk,
        "options": [getattr(options, name) for name in sorted(PackOptions.__dataclass_fields__)],
    }
    digest.update(json.dumps(sparse, sort_keys=True).encode())
    return digest.hexdigest()


def _pairs(pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    return sorted([min(pair), max(pair)] for pair in pairs)


def load(directory: Path, key: str) -> Packing | None:
    """The packing stored under `key`, not yet verified; None where there is none or it is damaged.

    Damaged means: no JSON, of another format or key, or a digest that does not match.
    """
    try:
        content = json.loads(_path(directory, key).read_bytes())
        body = content["plan"]
        if content["format"] != PLAN_FORMAT or body["key"] != key or content["digest"] != _digest(body):
            return None
        return Packing(
            offsets=array("q", body["offsets"]),
            height=int(body["height"]),
            lower_bound=int(body["lower_bound"]),
            optimal=body["optimal"] is True,
            method=str(body["method"]),
            order=str(body["order"]),
            nodes=int(body["nodes"]),
            seconds=0.0,
            seed=int(body["seed"]),
            heights={int(space): int(height) for space, height in body["heights"].items()},
            fits=body["fits"] is True,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def store(directory: Path, key: str, packing: Packing) -> bool:
    """Keep a packing; readers see the whole entry or the one before. False where the disk refuses it."""
    body = {
        "key": key,
        "offsets": list(packing.offsets),
        "height": packing.height,
        "lower_bound": packing.lower_bound,
        "optimal": packing.optimal,
        "method": packing.method,
        "order": packing.order,
        "nodes": packing.nodes,
        "seed": packing.seed,
        "heights": {str(space): height for space, height in packing.heights.items()},
        "fits": packing.fits,
    }
    content = {"format": PLAN_FORMAT, "digest": _digest(body), "plan": body}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with replacing(_path(directory, key)) as file:
            file.write(json.dumps(content, separators=(",", ":")).encode())
    except OSError:
        return False
    return True


def pack_cached(
    problem: Problem,
    options: PackOptions,
    solve: Callable[[Problem, PackOptions], Packing],
    directory: Path | None,
    *,
    kernels: int,
    minimum: int = DEFAULT_MIN_KERNELS,
) -> CacheOutcome:
    """`solve(problem, options)`, or what an earlier call made of the same problem and options.

    Args:
        directory: of the cache; None turns it off, as do fewer than `minimum` `kernels`.
    """
    if directory is None or kernels < minimum:
        return CacheOutcome(solve(problem, options), "off")
    key = plan_key(problem, options)
    path = _path(directory, key)
    known = load(directory, key)
    fault = "broken or of another version" if known is None and path.exists() else None
    if known is not None:
        fault = _fault(problem, known)
        if fault is None:
            return CacheOutcome(known, "hit", f"plan cache: taken from {path.name}, verified")
    packing = solve(problem, options)
    # A plan that a time limit cut short is worth keeping all the same: the key has the limit.
    kept = "kept" if store(directory, key, packing) else f"cannot write {directory}"
    if fault is not None:
        return CacheOutcome(packing, "stale", f"plan cache: entry {path.name} is {fault}; planned again, {kept}")
    return CacheOutcome(packing, "miss", f"plan cache: no entry {path.name}; planned, {kept}")


def _fault(problem: Problem, packing: Packing) -> str | None:
    """Why a loaded packing does not hold for `problem`, or None."""
    violations = verify(problem, packing.offsets)
    if violations:
        return f"wrong for this problem ({violations[0].message})"
    highest: dict[int, int] = {}
    for i, offset in enumerate(packing.offsets):
        space = problem.spaces[i] if problem.spaces else 0
        end = offset + (problem.sizes[i] if i in problem.aliases else problem.occupied(i))
        highest[space] = max(highest.get(space, 0), end)
    # Bytes reserved behind a group may lift the height above the highest buffer, never below it.
    if sum(highest.values()) > packing.height or packing.lower_bound > packing.height:
        return "wrong about its height"
    return None


def _digest(body: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _path(directory: Path, key: str) -> Path:
    return directory / f"plan-{key[:40]}.json"
