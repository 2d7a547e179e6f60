"""The one error boundary: whatever a command raises becomes an exit code, and text on stderr or JSON on stdout."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import select
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from kgrun.cli import timeout
from kgrun.graphs.errors import DoesNotFit, InternalError, Interrupted, KgrunError, UsageError

SCHEMA_VERSION = 1


class Finished(Exception):
    """A command is done and has reported already; `exit` is the process's exit code."""

    def __init__(self, exit: int) -> None:
        super().__init__(exit)
        self.exit = exit


class OutputClosed(Exception):
    """The reader of standard output went away (`kgrun … | head`)."""


class OutputUnwritable(UsageError):
    """Standard output takes nothing more: only stderr is left to say so."""


_STARTING, _RUNNING = 1_000_000, 200_000  # new objects between two looks for cycles

_words: tuple[str, ...] = ()
_told_of_failure: Callable[[KgrunError], None] | None = None


def on_failure(told: Callable[[KgrunError], None] | None) -> None:
    """Have `told` called with the error that ends the command, before it is shown; None: nobody."""
    globals()["_told_of_failure"] = told


def command_line() -> tuple[str, ...]:
    """The words of the command that runs."""
    return _words


def guarded(words: Sequence[str], *, own_process: bool = False) -> int:
    """Run the command line `words` and return its exit code; every failure is reported, none is raised.

    With `own_process` nothing else lives in this process: a command may then be watched from outside.
    """
    globals()["_words"] = tuple(words)
    if own_process:
        timeout.own_process = True
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name the terminal cannot show must not end the run
            stream.reconfigure(errors="backslashreplace")
    try:
        with _fewer_collections(for_good=own_process):
            code = _run(list(words))
        with _output_errors():
            sys.stdout.flush()
        return code
    except OutputClosed:
        _abandon_stdout()
        return 0
    except KeyboardInterrupt:
        return report_failure(Interrupted("interrupted"), words)
    except BaseException as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():  # while a page of help was written
            _abandon_stdout()
            return 0
        if os.environ.get("KGRUN_DEBUG"):
            traceback.print_exc()
        return report_failure(as_kgrun_error(error), words)


@contextlib.contextmanager
def _fewer_collections(*, for_good: bool) -> Iterator[None]:
    # A graph of 10,000 kernels is a million small objects without cycles: looking for some takes a fifth of the time.
    # What is imported has none either.
    thresholds = gc.get_threshold()
    gc.set_threshold(_STARTING, 20, 100)
    try:
        yield
    finally:
        if not for_good:  # else the first object made afterwards would have all others looked through
            gc.set_threshold(*thresholds)


def started() -> None:
    """All is imported and read: what there is stays, and from now on cycles are looked for more often.

    Only in a process of kgrun's own: others may want back what they let go of.
    """
    if gc.get_threshold()[0] == _STARTING and timeout.own_process:
        gc.freeze()
        gc.set_threshold(_RUNNING, 20, 100)


def _run(words: list[str]) -> int:
    import warnings

    if not os.environ.get("KGRUN_DEBUG"):
        warnings.simplefilter("ignore")  # a user sees kgrun's own warnings, not Python's
    from kgrun.cli.app import invoke

    try:
        return invoke(words)
    except Finished as done:
        return done.exit
    except SystemExit as done:  # typer's completion protocol ends so
        return done.code if isinstance(done.code, int) else 0 if done.code is None else 1


def as_kgrun_error(error: BaseException) -> KgrunError:
    """Any exception as something a user may see."""
    if isinstance(error, KgrunError):
        return error
    if isinstance(error, MemoryError):
        return DoesNotFit("out of host memory", code="KG410", help="close other programs, or use smaller dimensions")
    if isinstance(error, OSError) and error.filename is not None:
        return UsageError(f"{error.filename}: {error.strerror or error}", code="KG258")
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return UsageError(f"cannot write the output: {error.strerror}", code="KG258")
    text = str(error).strip().partition("\n")[0]
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return InternalError(
        f"internal error: {what}", help="this is a fault of kgrun: set KGRUN_DEBUG=1 to see where, and report it"
    )


def report_failure(error: KgrunError, words: Sequence[str]) -> int:
    """Show the error in the form that the command line asks for; its exit code."""
    timeout.commit()
    if _told_of_failure is not None:
        with contextlib.suppress(Exception):  # the error itself matters more
            _told_of_failure(error)
    try:
        if wants_json(words) and not isinstance(error, OutputUnwritable):
            write_stdout(to_json_text(error_document(error)))
            with _output_errors():
                sys.stdout.flush()
        else:
            print_error(error)
    except OutputClosed:
        _abandon_stdout()
    except OutputUnwritable as unwritten:
        print_error(error)
        print_error(unwritten)
    return error.exit


def wants_json(words: Sequence[str]) -> bool:
    """Whether the command line asks for JSON, found without parsing it: it may be what is wrong."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def all_errors(error: KgrunError) -> list[KgrunError]:
    """The error and, depth first, the further ones it carries."""
    return [error, *(inner for other in error.others for inner in all_errors(other))]


def failure_fields(error: KgrunError) -> dict[str, object]:
    """The members that the document of a failure has besides results."""
    rows = [each.to_json() for each in all_errors(error)]
    return {"error": rows[0], "errors": rows}


def error_document(error: KgrunError) -> dict[str, object]:
    """The JSON document of a failure without results."""
    return {"schema_version": SCHEMA_VERSION, "ok": False} | failure_fields(error)


def print_error(error: KgrunError) -> None:
    """Write the error and all it carries to stderr."""
    from kgrun.cli.render.text import printable

    blocks = [each.to_text() for each in all_errors(error)]
    with contextlib.suppress(OSError, ValueError):  # nobody is left to tell
        print("\n".join(printable(block, keep_lines=True) for block in blocks), file=sys.stderr, flush=True)


def to_json_text(document: Mapping[str, Any]) -> str:
    """One JSON document and a line break. ASCII, so that any terminal or pipe carries it; no NaN."""
    from kgrun.cli.render.json import dumps

    return dumps(document)


def write_stdout(text: str) -> None:
    """Write to standard output; OutputClosed when its reader is gone."""
    with _output_errors():
        sys.stdout.write(text)


@contextlib.contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        _abandon_stdout()
        _no_output(error)


def _reader_is_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    if not hasattr(select, "poll"):
        return False
    with contextlib.suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    return False


def _no_output(error: OSError) -> NoReturn:
    raise OutputUnwritable(f"cannot write to standard output: {error.strerror or error}", code="KG258") from None


def _abandon_stdout() -> None:
    # The interpreter flushes stdout once more at exit and would complain: give it somewhere to go.
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
