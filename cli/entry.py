"""The process's first and last lines: `kgrun --version` at no cost, everything else inside the error boundary."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from kgrun.graphs.version import __version__

STARTED = time.perf_counter_ns()  # for --cold-report


def process() -> NoReturn:
    """`main`, and the process's end: what is registered for it happens, the modules are not taken apart.

    Python frees its objects one by one before it ends, which takes longer than many a run; the system does it at once.
    """
    import atexit

    # Looking for plugins reads the metadata of every package that is installed; the schema has none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    code = main()
    atexit._run_exitfuncs()
    try:
        sys.stderr.flush()
        sys.stdout.flush()
    except (OSError, ValueError):  # the reader went away: `guarded` has dealt with it
        pass
    if "mpi4py.MPI" in sys.modules:  # MPI says good-bye when the C library ends; else its launcher ends the others
        sys.exit(code)
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code; never raises."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:  # answered before typer is imported
        print(f"kgrun {__version__}")
        return 0
    from kgrun.cli.boundary import guarded  # heavy only from here on

    return guarded(words, own_process=arguments is None)
