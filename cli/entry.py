"""The process's first and last lines: `kgrun --version` at no cost, everything else inside the error boundary."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from kgrun.graphs.version import __version__

STARTED = time.perf_counter_ns()  # for --cold-report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code; never raises."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:  # answered before typer is imported
        print(f"kgrun {__version__}")
        return 0
    from kgrun.cli.boundary import guarded  # heavy only from here on

    return guarded(words, own_process=arguments is None)
