"""The exception tree: every way a kgrun command can fail, with its exit code.

KgrunError                 what a user may see; carries code, exit, message, where, help
├── InternalError      1   kgrun itself is at fault
├── UsageError         2   the command line or an API argument is wrong
├── GraphError         3   the graph or one of its data files is invalid
├── DoesNotFit         4   the plan is infeasible or a device is out of memory
├── CompileError       5   a kernel does not compile
├── DeviceFault        6   a launch or the device failed
├── DeviceUnavailable  7   no device, or its software is missing
├── CheckFailed        8   outputs differ from the expected ones, or a check failed
├── TimeoutExpired     9   a time limit ended the run
├── Regression        10   `kgrun diff` found a regression
└── Interrupted      130   the user stopped the run
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Self

from kgrun.graphs.records import dataclass

PathPart = str | int
Spot = tuple[int, int]  # line and column


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the user's files something stands.

    Attributes:
        file: the file as the user named it, None for values that came through the Python API.
        path: keys and indices from the document's root, for example ("nodes", 2, "args", 1).
        line, column: 1-based, where the file has them.
    """

    file: str | None = None
    path: tuple[PathPart, ...] = ()
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.file, format_path(self.path)) if part)
        if self.line is None:
            return text
        spot = f"line {self.line}" + (f", column {self.column}" if self.column is not None else "")
        return f"{text} ({spot})" if text else spot


class LatePlace(Place):
    """A place whose line and column are looked for when somebody asks: mostly nobody does.

    Args:
        locate: gives line and column of a path, None where they are not known.
    """

    __slots__ = ("_locate",)

    def __init__(self, file: str | None, path: tuple[PathPart, ...], locate: Callable[..., Spot | None]) -> None:
        super().__init__(file, path)
        self._locate = locate

    @property
    def line(self) -> int | None:
        """1-based."""
        spot = self._locate(self.path)
        return None if spot is None else spot[0]

    @property
    def column(self) -> int | None:
        """1-based."""
        spot = self._locate(self.path)
        return None if spot is None else spot[1]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Place):
            return NotImplemented
        mine, theirs = ((p.file, p.path, p.line, p.column) for p in (self, other))
        return mine == theirs

    def __hash__(self) -> int:
        return hash((self.file, self.path, self.line, self.column))


def format_path(path: Iterable[PathPart]) -> str:
    """`("nodes", 2, "args", 1)` as `nodes[2].args[1]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("_", "a").isalnum():
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text


class KgrunError(Exception):
    """Base of everything a user may see.

    Attributes:
        code: stable identifier, `KG` and three digits; the first digit follows the exit code.
        exit: the process's exit code.
        where: the place, if one is known.
        help: what to do about it, if something can be said.
        details: plain values for the JSON document (numbers, names), never needed to understand the message.
        others: further errors of the same check, so that one run reports them all.
    """

    exit: ClassVar[int] = 1
    default_code: ClassVar[str] = "KG100"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        where: Place | str | None = None,
        help: str | None = None,
        details: Mapping[str, object] | None = None,
        others: Iterable[KgrunError] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.where = Place(file=where) if isinstance(where, str) else where
        self.help = help
        self.details = dict(details or {})
        self.others = tuple(others)

    def at(self, where: Place) -> Self:
        """Give the error a place unless it has one already; returns itself for `raise error.at(...)`."""
        if self.where is None:
            self.where = where
        return self

    def to_json(self) -> dict[str, object]:
        """The `error` object of a JSON document."""
        row: dict[str, object] = {
            "code": self.code,
            "exit": self.exit,
            "message": self.message,
            "where": str(self.where) if self.where else None,
            "help": self.help,
        }
        return row | ({"details": self.details} if self.details else {})

    def to_text(self) -> str:
        """The message as the terminal shows it: what, where, what to do."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.where and str(self.where):
            lines.append(f"  at {self.where}")
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


class InternalError(KgrunError):
    """A fault of kgrun itself."""


class UsageError(KgrunError):
    """The command line or an API argument is wrong."""

    exit = 2
    default_code = "KG200"


class GraphError(KgrunError):
    """The graph file or one of its data files is invalid."""

    exit = 3
    default_code = "KG300"


class DoesNotFit(KgrunError):
    """The plan is infeasible under the limit, or a device ran out of memory."""

    exit = 4
    default_code = "KG400"


class CompileError(KgrunError):
    """A kernel does not compile or does not load."""

    exit = 5
    default_code = "KG500"


class DeviceFault(KgrunError):
    """A launch or the device failed."""

    exit = 6
    default_code = "KG600"


class DeviceUnavailable(KgrunError):
    """No device, or the software it needs is missing."""

    exit = 7
    default_code = "KG700"


class CheckFailed(KgrunError):
    """Outputs differ from the expected ones, or a check of the run failed."""

    exit = 8
    default_code = "KG800"


class TimeoutExpired(KgrunError):
    """A time limit ended the run."""

    exit = 9
    default_code = "KG900"


class Regression(KgrunError):
    """A report is worse than the one it is compared with."""

    exit = 10
    default_code = "KG010"


class Interrupted(KgrunError):
    """The user stopped the run."""

    exit = 130
    default_code = "KG130"


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A help line naming the closest known names, or None when nothing is close."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(repr(c) for c in close)}?" if close else None


@contextmanager
def placed(where: Place | None) -> Iterator[None]:
    """Errors raised inside get the place `where` unless they have one."""
    try:
        yield
    except KgrunError as error:
        if where is not None:
            error.at(where)
        raise
