"""What a rank of a test's job runs, on the device that its argument names (the CPU)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from kgrun.cli import boundary
from kgrun.graphs.errors import KgrunError
from kgrun.runtime.collectives.holder import hold
from kgrun.runtime.collectives.ranks import ranks_from_environment
from kgrun.runtime.collectives.world import World, enter


def as_rank(scenario: Callable[[World, str], None], device: str) -> int:
    """Be a rank, as `kgrun execute` is one."""
    info = ranks_from_environment()
    assert info is not None
    hold(info)
    world = enter(info, 20.0 if device == "cpu" else 120.0)
    boundary.on_failure(world.fail)
    try:
        world.greet("a test", device.partition(":")[0])
        scenario(world, device)
        world.finish()
    except BaseException as error:
        found = boundary.as_kgrun_error(error)
        if not isinstance(error, KgrunError):
            import traceback

            traceback.print_exc()
        return boundary.report_failure(found, [])
    return 0


if __name__ == "__main__":
    from tests.runtime.collectives import operator_cases

    sys.exit(as_rank(operator_cases.check, *sys.argv[1:] or ["cpu"]))
