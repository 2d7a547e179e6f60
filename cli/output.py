"""Where results go: one JSON document, CSV rows, or a text report; files are written whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from kgrun.cli import timeout
from kgrun.cli.boundary import SCHEMA_VERSION, Finished, failure_fields, print_error, to_json_text, write_stdout
from kgrun.graphs import whole_files
from kgrun.graphs.errors import KgrunError, UsageError
from kgrun.graphs.records import dataclass

Document = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
Section = Any  # a render.table.Table or a line of text


@dataclass(frozen=True, slots=True)
class Output:
    """How the user wants to see results.

    Attributes:
        csv: file for CSV rows, "-" for stdout, None for none.
        verbose: every row of every table, and progress even where stderr is no terminal.
    """

    json: bool = False
    csv: str | None = None
    quiet: bool = False
    verbose: bool = False
    no_color: bool = False

    def __post_init__(self) -> None:
        if self.json and self.csv == "-":
            raise UsageError("--json and --csv - both write to standard output", code="KG256", help="give --csv a file")

    def emit(
        self,
        *,
        document: Callable[[], Document],
        report: Callable[[], Iterable[Section]],
        rows: Callable[[], Rows] | None = None,
        error: KgrunError | None = None,
    ) -> None:
        """Print the results in the form asked for.

        With `error` the results are shown all the same, then the error, and Finished carries its exit code.
        """
        timeout.commit()
        if self.csv is not None and rows is not None:
            self._write_csv(rows())
        if self.json:
            failure = failure_fields(error) if error else {}
            write_stdout(to_json_text({"schema_version": SCHEMA_VERSION, "ok": error is None} | failure | document()))
        elif not self.quiet and self.csv != "-":
            from kgrun.cli.render.table import show

            write_stdout(show(report(), self))
        if error is not None:
            if not self.json:
                sys.stdout.flush()
                print_error(error)
            raise Finished(error.exit)

    def _write_csv(self, rows: Rows) -> None:
        from kgrun.cli.render.csv import to_csv

        if self.csv == "-":
            write_stdout(to_csv(rows))
        elif self.csv is not None:
            write_text(Path(self.csv), to_csv(rows))


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """As `graphs.whole_files.replacing`; UsageError KG258 where the file cannot be written."""
    try:
        with whole_files.replacing(path) as target:
            yield target
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}", code="KG258") from None


def write_text(path: Path, text: str) -> None:
    """Write a whole UTF-8 file, or nothing."""
    with replacing(path) as target:
        target.write(text.encode("utf-8", "backslashreplace"))


def check_places(files: Iterable[str | None], made: Iterable[str | None] = (), code: str = "KG258") -> None:
    """UsageError `code` for a file that surely cannot be written, before a long run whose results would go with it.

    `made` are folders that the command makes itself before it writes the files.
    """
    folders = [Path(each) for each in made if each is not None]
    for folder in folders:
        above = next((each for each in (folder, *folder.absolute().parents) if each.exists()), folder)
        if above.exists() and not above.is_dir():
            raise UsageError(f"cannot write to {folder}: {above} is no folder", code=code)
    for path in (Path(each) for each in files if each is not None and each != "-"):
        if path.is_dir():
            raise UsageError(f"cannot write {path}: Is a directory", code=code)
        if not path.parent.is_dir() and not any(path.parent.is_relative_to(folder) for folder in folders):
            raise UsageError(f"cannot write {path}: there is no folder {path.parent}", code=code)
