"""Tables of the text report: rich ones on a terminal, plain ones with whole names everywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.text import pad, printable, width
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    from kgrun.cli.output import Output

ROWS_SHOWN = 60  # of a long table, unless all are asked for
_WIDEST = 72  # of a column where columns are as wide as their content


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table of text cells.

    Attributes:
        columns: headers; one that starts with ">" is aligned right.
        rest: what the hidden rows are, if the table may be cut: "kernels".
        optional: columns that a narrow terminal may do without, the least needed first.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    rest: str | None = None
    optional: Sequence[str] = ()

    def cut(self, verbose: bool) -> tuple[Sequence[Sequence[str]], str | None]:
        """The rows to show, and a line on those that are not."""
        hidden = len(self.rows) - ROWS_SHOWN
        if verbose or self.rest is None or hidden <= 0:
            return self.rows, None
        return self.rows[:ROWS_SHOWN], f"… and {hidden:,} more {self.rest}; -v, --csv and --json have all of them"


def show(sections: Iterable[Table | str], output: Output) -> str:
    """Sections as text, a blank line before each table; for a terminal with colours unless they are refused."""
    pieces = list(sections)
    if _is_terminal() and not output.no_color and not os.environ.get("NO_COLOR"):
        return _rich(pieces, output.verbose)
    return plain(pieces, output.verbose)


def plain(sections: Iterable[Table | str], verbose: bool = False) -> str:
    """Text without a single escape code; columns as wide as their content, but for names that are longer than most.

    A row is a line, and a name is whole: one that is longer than _WIDEST moves the rest of its own row alone.
    """
    lines: list[str] = []
    for section in sections:
        if isinstance(section, str):
            lines.append(printable(section, keep_lines=True))
            continue
        rows, more = section.cut(verbose)
        cells = [[header.lstrip(">") for header in section.columns], *([printable(c) for c in row] for row in rows)]
        widths = [min(max(map(width, column)), _WIDEST) for column in zip(*cells, strict=True)]
        right = [header.startswith(">") for header in section.columns]
        lines += ["", section.title]
        lines += [
            "  " + "  ".join(pad(c, w, right=r) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
            for row in cells
        ]
        lines += [f"  {more}"] if more else []
    return "\n".join(lines).removeprefix("\n") + "\n" if lines else ""


def _is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


_STYLES = {"DIFFERS": "bold red", "broken": "red", "refused": "yellow", "missing": "yellow", "equal": "green"}


def _rich(sections: Sequence[Table | str], verbose: bool) -> str:
    import io
    import shutil

    from rich.console import Console
    from rich.text import Text

    columns = max(40, shutil.get_terminal_size().columns)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=columns, highlight=False, legacy_windows=False)
    for section in sections:
        if isinstance(section, str):
            console.print(Text(printable(section, keep_lines=True)), soft_wrap=True)
        else:
            console.print()
            console.print(Text(section.title, style="bold"))
            console.print(_rich_table(section, verbose, columns))
    return screen.getvalue()


def _rich_table(section: Table, verbose: bool, columns: int) -> Any:
    from rich.table import Table as RichTable
    from rich.text import Text

    rows, more = section.cut(verbose)
    kept = _kept(section, rows, columns)
    table = RichTable(box=None, padding=(0, 2, 0, 0), caption=Text(more) if more else None, caption_justify="left")
    for index in kept:
        header = section.columns[index]
        if header.startswith(">"):
            table.add_column(header[1:], justify="right", no_wrap=True, header_style="dim")
        else:
            table.add_column(header, overflow="fold", header_style="dim")  # a long name is wrapped, never cut
    for row in rows:
        table.add_row(*(Text(printable(row[index]), style=_STYLES.get(row[index], "")) for index in kept))
    return table


def _kept(section: Table, rows: Sequence[Sequence[str]], columns: int) -> list[int]:
    """Indices of the columns to show in a terminal of `columns` columns."""
    widths = [max(map(width, column)) + 2 for column in zip(section.columns, *rows, strict=True)]
    kept = list(range(len(widths)))
    for header in section.optional:
        if sum(widths[index] for index in kept) <= columns:
            break
        kept.remove(section.columns.index(header))
    return kept
