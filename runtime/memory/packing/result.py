"""What packing answers: offsets with their certificate, the options asked for, and the verifier's findings."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

METHODS = ("auto", "skyline", "exact", "greedy-size", "best-fit", "first-fit", "somas", "none")


@dataclass(frozen=True)
class PackOptions:
    """How to pack.

    Attributes
    ----------
    method : one of METHODS. `auto` runs the others it needs and never ends above `greedy-size`.
    node_limit : nodes the exact search may visit a component of up to 256 blocks (proportionally fewer in larger
        ones); the budget that decides results.
    time_limit : CPU seconds for the whole call, a safety net: the best plan found by then is returned.
    capacity : bytes; a plan at or below it is enough, so the search stops there. None minimises.
    seed : picks the random orderings of large problems.
    """

    method: str = "auto"
    node_limit: int = 120_000
    time_limit: float = 2.0
    capacity: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Packing:
    """Offsets and their certificate. Bytes are summed over the spaces; `heights` has them apart."""

    offsets: array[int]
    height: int
    lower_bound: int
    optimal: bool
    method: str
    order: str
    nodes: int
    seconds: float
    seed: int = 0
    heights: Mapping[int, int] = field(default_factory=dict)
    fits: bool = True

    @property
    def gap(self) -> int:
        """Bytes above the lower bound."""
        return self.height - self.lower_bound


class ViolationKind(StrEnum):
    """What a plan can do wrong."""

    COUNT = "count"
    NEGATIVE = "negative"
    ALIGNMENT = "alignment"
    FIXED = "fixed"
    ALIAS = "alias"
    GROUP = "group"
    OVERLAP = "overlap"
    CAPACITY = "capacity"
    CHUNK = "chunk"


@dataclass(frozen=True)
class Violation:
    """One fault of a plan: its kind, the buffers (positions) it concerns and a sentence."""

    kind: ViolationKind
    buffers: tuple[int, ...]
    message: str
