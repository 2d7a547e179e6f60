"""`kgrun doctor`: what is installed, what works, what to install."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kgrun.cli import options as opt
from kgrun.cli.output import Output

if TYPE_CHECKING:
    from kgrun.cli.render.table import Table


def command(
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    no_color: opt.NoColor = False,
) -> None:
    """Say what is installed, what works on this machine, and how to install what is missing."""
    from kgrun.runtime.devices import doctor

    rows = doctor.diagnose()

    def report() -> Iterator[Table | str]:
        from kgrun.cli.render.table import Table

        cells = [(row.component, row.status, row.version or "-", row.why) for row in rows]
        yield Table("Components", ("component", "status", "version", "needed for"), cells)
        for row in rows:
            if row.status != "ok":
                yield ""
                yield f"{row.component} is {row.status}{': ' + row.detail if row.detail else ''}"
                yield from (f"  {line}" for line in (row.install or "").splitlines())
        yield ""
        for each in doctor.abilities(rows):
            yield f"{each.name}: {'yes' if each.able else f'no, {each.reason}'}"

    output = Output(json, None, quiet, verbose, no_color)
    output.emit(document=lambda: doctor.document(rows), report=report)
