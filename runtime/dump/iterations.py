"""Which iterations are dumped: `all`, or `0|3-5|9` (S137)."""

from __future__ import annotations

import re

from kgrun.graphs.errors import UsageError
from kgrun.graphs.records import dataclass

_ITEM = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


@dataclass(frozen=True, slots=True)
class Iterations:
    """Inclusive ranges of iterations, counted from 0; None: all."""

    ranges: tuple[tuple[int, int], ...] | None

    def __contains__(self, iteration: int) -> bool:
        return self.ranges is None or any(first <= iteration <= last for first, last in self.ranges)


def parse_iterations(text: str) -> Iterations:
    """The iterations that `text` names.

    Raises:
        UsageError: KG253 for anything but `all`, or numbers and ranges with `|` between them.
    """
    if text == "all":
        return Iterations(None)
    ranges = []
    for item in text.split("|"):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise _malformed(text, f"{item!r} is neither a number nor a range")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if last < first:
            raise _malformed(text, f"{item!r} runs backwards")
        ranges.append((first, last))
    return Iterations(tuple(ranges))


def _malformed(text: str, why: str) -> UsageError:
    return UsageError(f"iterations {text!r}: {why}", code="KG253", help="write all, or as in 0|3-5|9")
