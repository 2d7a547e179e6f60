"""Pictures of a memory plan: files for `--html` and `--svg`, and the sketch of the text report."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kgrun.cli import timeout
from kgrun.cli.output import write_text
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    from kgrun.cli.render.memory_map import MemoryMap

SKETCH_ROWS = 12
PIPE_COLUMNS = 80


@dataclass(frozen=True, slots=True)
class Pictures:
    """Files to draw into, None for those not asked for."""

    html: str | None = None
    svg: str | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is anything to draw."""
        return self.html is not None or self.svg is not None

    def draw(self, picture: MemoryMap) -> None:
        """Write the files that were asked for, each whole or not at all."""
        from kgrun.cli.render.memory_map import html_page, svg_map

        if self.html is not None:
            timeout.commit()
            write_text(Path(self.html), html_page(picture))
        if self.svg is not None:
            timeout.commit()
            write_text(Path(self.svg), svg_map(picture))


def sketch_lines(picture: MemoryMap) -> Iterator[str]:
    """The arena over time in text blocks, after a blank line and a title; nothing where there is no arena."""
    from kgrun.cli.render.memory_map import terminal_sketch

    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_COLUMNS
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    lines = terminal_sketch(picture, max(40, columns - 2), SKETCH_ROWS, ascii_only=not unicode)
    if lines:
        yield ""
        yield "Dynamic memory over time"
        yield from (f"  {line}" for line in lines)
