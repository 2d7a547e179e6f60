"""What the JSON and the YAML reader have in common: the value they read, and where its parts stand."""

from __future__ import annotations

from collections.abc import Callable

from kgrun.graphs.errors import GraphError, PathPart, Place, Spot
from kgrun.graphs.records import dataclass

Path = tuple[PathPart, ...]
# The line and column (from 1) of the value at a path, or of its key; of the deepest part that exists otherwise.
Locate = Callable[[Path, bool], Spot | None]


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file.

    Attributes:
        name: the file as the user named it; None where there is none.
        value: dicts with string keys, lists, strings, integers, finite floats, booleans and None.
        locate: finds places.
    """

    name: str | None
    value: object
    locate: Locate

    def spot(self, path: Path) -> Spot | None:
        """Line and column of the value at `path`."""
        return self.locate(path, False)

    def place(self, path: Path, *, key: bool = False) -> Place:
        """The place of the value at `path`, or of its key."""
        line, column = self.locate(path, key) or (None, None)
        return Place(self.name, path, line, column)


def at_offset(text: str, offset: int) -> Spot:
    """Line and column, from 1, of a character offset."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def duplicate_key(name: str, path: Path, key: str, first: Spot, second: Spot) -> GraphError:
    """KG306: `key` stands twice in the mapping at `path`."""
    return GraphError(
        f"duplicate key {key!r}: first at line {first[0]}, column {first[1]}, again at line {second[0]}, "
        f"column {second[1]}",
        code="KG306",
        where=Place(name, (*path, key), *second),
        help="keep one of them; readers that take the last one hide the other",
        details={"key": key, "first": list(first), "second": list(second)},
    )


def not_finite(name: str, path: Path, literal: str, spot: Spot) -> GraphError:
    """KG308: a number that is no finite 64-bit float, or too long."""
    short = literal if len(literal) <= 40 else f"of {len(literal)} characters"
    return GraphError(
        f"number {short} is out of range",
        code="KG308",
        where=Place(name, path, *spot),
        help='in a tensor\'s `value` and in `init: {fill: …}`, write "nan", "inf" or "-inf" as strings',
    )


def limit_exceeded(name: str, what: str, limit: str, spot: Spot | None = None) -> GraphError:
    """KG307: the file goes beyond one of the caps of `limits`."""
    line, column = spot or (None, None)
    return GraphError(f"{what}; the limit is {limit}", code="KG307", where=Place(name, (), line, column))


def half_character(name: str, spot: Spot) -> GraphError:
    """KG305: an escape that stands for half of a surrogate pair."""
    return GraphError(
        "a string holds half of a surrogate pair",
        code="KG305",
        where=Place(name, (), *spot),
        help="write the character itself, or both halves",
    )
