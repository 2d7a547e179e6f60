"""YAML text to a value: one document, core schema, string keys, no tags, no merge keys, bounded aliases.

The value is built from the parser's events with an explicit stack, so that neither deep nor self-referring documents
can exhaust anything, and every key and value has its place.
"""

from __future__ import annotations

from array import array
from dataclasses import field
from typing import Any, NoReturn

import yaml

from kgrun.graphs.errors import GraphError, Place, Spot
from kgrun.graphs.load.document import (
    Document,
    Path,
    at_offset,
    duplicate_key,
    half_character,
    limit_exceeded,
    not_finite,
)
from kgrun.graphs.load.limits import MAX_ALIASED_VALUES, MAX_DEPTH, MAX_VALUES
from kgrun.graphs.load.yaml_scalars import NotFinite, plain_scalar
from kgrun.graphs.records import dataclass

# libyaml's parser where PyYAML was built with it: some ten times as fast, the same events.
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_COLUMN_BITS = 24
_TAGS = "no tags: kgrun reads plain data only"


def read_yaml(text: str, name: str, parser: Any = _PARSER) -> Document:
    """Parse `text`, the content of the file `name`.

    Raises:
        GraphError: KG305 for a syntax error, KG306 for a duplicate key, KG307 beyond a cap of `limits`, KG308 for
            .nan, .inf and numbers beyond 64-bit floats, KG309 for what YAML has and a graph file has not.
    """
    builder = _Builder(name)
    try:
        events = parser(text)
        try:
            while builder.take(events.get_event()):
                pass
        finally:
            events.dispose()
    except yaml.YAMLError as error:
        raise _syntax_error(text, name, error) from None
    return Document(name, builder.root, YamlPlaces(builder.root, builder.root_mark, builder.marks))


class YamlPlaces:
    """Finds line and column of paths in a value that was built from YAML."""

    def __init__(self, root: object, root_mark: int, marks: dict[int, array[int]]) -> None:
        self._root = root
        self._root_mark = root_mark
        self._marks = marks

    def __call__(self, path: Path, key: bool) -> Spot | None:
        """The place of the value at `path`, or of its key."""
        value = self._root
        key_mark = mark = self._root_mark
        for part in path:
            marks = self._marks.get(id(value))
            if marks is None:
                break
            if isinstance(value, dict) and part in value:
                index = list(value).index(part)
                key_mark, mark, value = marks[2 * index], marks[2 * index + 1], value[part]
            elif isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value):
                key_mark = mark = marks[part]
                value = value[part]
            else:
                break
        return _spot(key_mark if key else mark)


def _pack(mark: Any) -> int:
    line: int = mark.line
    column: int = mark.column
    return line << _COLUMN_BITS | column & (1 << _COLUMN_BITS) - 1


def _spot(mark: int) -> Spot:
    return (mark >> _COLUMN_BITS) + 1, (mark & (1 << _COLUMN_BITS) - 1) + 1


@dataclass(slots=True)
class _Frame:
    """An open list or mapping.

    Attributes:
        marks: of the items; of key and value in turn for a mapping.
        mark: its own.
        before: values that stood before it, for its expanded size.
        height: levels of containers inside it.
        key: the key that waits for its value.
    """

    value: Any
    mark: int
    anchor: str | None
    before: int
    marks: array[int] = field(default_factory=lambda: array("Q"))
    height: int = 0
    key: str | None = None


@dataclass(frozen=True, slots=True)
class _Anchored:
    """What an anchor names: size in values with aliases expanded, height in levels."""

    value: Any
    size: int
    height: int


class _Builder:
    """Takes events one by one; `root` is the document's value in the end."""

    def __init__(self, name: str) -> None:
        self.root: object = None
        self.root_mark = 0
        self.marks: dict[int, array[int]] = {}
        self._name = name
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchored] = {}
        self._values = 0
        self._aliased = 0
        self._documents = 0

    def take(self, event: Any) -> bool:
        """Add `event`; False at the stream's end."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open({} if kind is yaml.MappingStartEvent else [], event)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close()
        elif kind is yaml.AliasEvent:
            self._alias(event)
        elif kind is yaml.DocumentStartEvent:
            self._documents += 1
            if self._documents > 1:
                self._refuse("the file holds more than one document", event, "a graph file is one document")
        return kind is not yaml.StreamEndEvent

    def _path(self) -> Path:
        """The path of the value that comes next; of the mapping while its key comes next."""
        parts = [frame.key if type(frame.value) is dict else len(frame.value) for frame in self._stack]
        return tuple(part for part in parts if part is not None)

    def _refuse(self, message: str, event: Any, help: str | None = None) -> NoReturn:
        line, column = _spot(_pack(event.start_mark))
        raise GraphError(message, code="KG309", where=Place(self._name, self._path(), line, column), help=help)

    def _scalar(self, event: Any) -> None:
        text = event.value
        if event.tag is not None:
            self._refuse(f"tag {event.tag!r} is not allowed", event, _TAGS)
        if event.implicit[0]:
            try:
                value = plain_scalar(text)
            except NotFinite:
                spot = _spot(_pack(event.start_mark))
                raise not_finite(self._name, self._path(), text, spot) from None
        else:
            value = text
            if event.style == '"' and not text.isascii() and any("\ud800" <= c < "\ue000" for c in text):
                raise half_character(self._name, _spot(_pack(event.start_mark)))
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, 1, 0)
        self._add(value, event, 1, 0)

    def _open(self, value: Any, event: Any) -> None:
        if event.tag is not None:
            self._refuse(f"tag {event.tag!r} is not allowed", event, _TAGS)
        if self._stack and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None:
            self._refuse("a key is a string, not a list or mapping", event, "quote a key that starts with [ or {")
        mark = _pack(event.start_mark)
        if len(self._stack) >= MAX_DEPTH:
            raise limit_exceeded(self._name, "lists and mappings nest too deeply", f"{MAX_DEPTH} levels", _spot(mark))
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)
        self._stack.append(_Frame(value, mark, event.anchor, self._values))

    def _close(self) -> None:
        frame = self._stack.pop()
        self.marks[id(frame.value)] = frame.marks
        height = frame.height + 1
        if frame.anchor is not None:
            self._anchors[frame.anchor] = _Anchored(frame.value, self._values - frame.before + 1, height)
        self._add(frame.value, None, 1, height, frame.mark)

    def _alias(self, event: Any) -> None:
        found = self._anchors.get(event.anchor)
        if found is None:
            inside = any(frame.anchor == event.anchor for frame in self._stack)
            what = "stands inside what it names" if inside else "names nothing before it"
            self._refuse(f"alias *{event.anchor} {what}", event)
        self._aliased += found.size
        spot = _spot(_pack(event.start_mark))
        if self._aliased > MAX_ALIASED_VALUES:
            raise limit_exceeded(self._name, "aliases repeat too many values", f"{MAX_ALIASED_VALUES:,} values", spot)
        if len(self._stack) + found.height > MAX_DEPTH:
            raise limit_exceeded(self._name, "aliases nest too deeply", f"{MAX_DEPTH} levels", spot)
        self._add(found.value, event, found.size, found.height)

    def _add(self, value: Any, event: Any, size: int, height: int, mark: int | None = None) -> None:
        """Put a complete value (or a key) where it belongs; `size` values, `height` levels."""
        if mark is None:
            mark = _pack(event.start_mark)
        self._values += size
        if self._values > MAX_VALUES:
            raise limit_exceeded(self._name, "the file holds too many values", f"{MAX_VALUES:,} values", _spot(mark))
        if not self._stack:
            self.root, self.root_mark = value, mark
            return
        frame = self._stack[-1]
        if height > frame.height:
            frame.height = height
        if type(frame.value) is list:
            frame.value.append(value)
        elif frame.key is None:
            self._check_key(frame, value, event, mark)
            frame.key = value
        else:
            frame.value[frame.key] = value
            frame.key = None
        frame.marks.append(mark)

    def _check_key(self, frame: _Frame, key: Any, event: Any, mark: int) -> None:
        if not isinstance(key, str):
            kind = {int: "an integer", float: "a number", bool: "a boolean", type(None): "null"}.get(type(key))
            if type(event) is yaml.AliasEvent or kind is None:
                self._refuse("a key is a string", event)
            if event.value == "":
                self._refuse("a key is missing", event)
            self._refuse(f"key {event.value} is {kind}, keys are strings", event, f'quote it: "{event.value}"')
        if key == "<<" and type(event) is yaml.ScalarEvent and event.implicit[0]:
            self._refuse("merge keys (<<) are not allowed", event, "write the keys out, or use an alias for a value")
        if key in frame.value:
            first = _spot(frame.marks[2 * list(frame.value).index(key)])
            raise duplicate_key(self._name, self._path(), key, first, _spot(mark))


def _syntax_error(text: str, name: str, error: yaml.YAMLError) -> GraphError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).partition("\n")[0]
    context = getattr(error, "context", None)
    spot = _spot(_pack(mark)) if mark else None
    if "nesting depth" in problem:
        return limit_exceeded(name, "lists and mappings nest too deeply", f"{MAX_DEPTH} levels", spot)
    if isinstance(error, yaml.reader.ReaderError):
        problem, context = "a control character is not allowed", None
        spot = at_offset(text, error.position) if 0 <= error.position <= len(text) else None
    tab = mark is not None and text[mark.index : mark.index + 1] == "\t"
    line, column = spot or (None, None)
    return GraphError(
        f"not valid YAML: {problem}" + (f" {context}" if context else ""),
        code="KG305",
        where=Place(name, (), line, column),
        help="indent with spaces, not tabs" if tab else None,
    )
