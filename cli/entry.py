"""The process's first and last lines: `kgrun --version` at no cost, everything else inside the error boundary."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from kgrun.graphs.version import __version__

if TYPE_CHECKING:
    from types import FrameType

STARTED = time.perf_counter_ns()  # for --cold-report


def process() -> NoReturn:
    """`main`, and the process's end: what is registered for it happens, the modules are not taken apart.

    Python frees its objects one by one before it ends, which takes longer than many a run; the system does it at once.
    """
    import atexit
    import signal

    # Looking for plugins reads the metadata of every package that is installed; the schema has none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    _open_missing_streams()
    if _returns_to_python():
        sys.exit(main())
    sys.unraisablehook = _interrupt_later
    try:
        code = main()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # from here on Ctrl-C ends the process, without a traceback
    except KeyboardInterrupt:  # once more, while the first one was being told
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_DFL)
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
        with contextlib.suppress(OSError):  # nobody reads, or the disk is full: the boundary knows what to say
            print(f"kgrun {__version__}", flush=True)
            return 0
    try:
        from kgrun.cli.late import import_late  # heavy only from here on

        import_late("importlib.metadata")  # it brings a mail parser, for plugins that nobody has
        from kgrun.cli.boundary import guarded
    except KeyboardInterrupt:
        from kgrun.cli.boundary import report_failure
        from kgrun.graphs.errors import Interrupted

        return report_failure(Interrupted("interrupted"), words)
    return guarded(words, own_process=arguments is None)


def _interrupt_later(lost: sys.UnraisableHookArgs) -> None:
    """Ctrl-C that came in a place which cannot raise it (a native module's callback) comes again once that is left."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        import _thread
        import signal

        def again() -> None:
            time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        _thread.start_new_thread(again, ())
    else:
        sys.__unraisablehook__(lost)


def _open_missing_streams() -> None:
    """Give each standard stream that is closed (`kgrun … >&-`) a file that swallows everything and holds nothing.

    Otherwise the next file to be opened would take its number, and be written to by whatever writes to that stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (it stays open)


def _returns_to_python() -> bool:
    """Whether something in Python started this command and waits for its end: a profiler, a debugger, `python -i`."""
    frame: FrameType | None = sys._getframe(1)
    modules = 0
    while frame is not None:
        modules += frame.f_code.co_name == "<module>"
        frame = frame.f_back
    return modules > 1 or bool(sys.flags.inspect)
