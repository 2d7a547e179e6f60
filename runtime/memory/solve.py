"""Pack with the user's choice of planner; what it cannot take is the user's to hear."""

from __future__ import annotations

from kgrun.graphs.errors import UsageError
from kgrun.runtime.memory.packing import Packing, PackingError, PackOptions, Problem, pack


class TooLarge(UsageError):
    """The chosen planner cannot take a problem of this size."""

    default_code = "KG203"


def solve(problem: Problem, options: PackOptions) -> Packing:
    """`packing.pack`; TooLarge where the method needs a conflict graph that is too large to build."""
    try:
        return pack(problem, options)
    except PackingError as error:
        raise TooLarge(
            f"planner {options.method!r} cannot plan {len(problem):,} buffers: {error}",
            help="--planner auto and --planner skyline need no conflict graph",
        ) from None
