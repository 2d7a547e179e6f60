"""From what the user named to text: reads a file or standard input and refuses what cannot be a graph."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO, Literal

from kgrun.graphs.errors import GraphError, Place, did_you_mean
from kgrun.graphs.load.kinds import binary_kind, help_for, text_kind
from kgrun.graphs.load.limits import MAX_BYTES
from kgrun.graphs.records import dataclass

Format = Literal["json", "yaml"]
STDIN = "<stdin>"
EXPECTED = "a graph (.json/.yaml)"
_FORMATS: dict[str, Format] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a graph file.

    Attributes:
        name: as the user gave it.
        format: by the name's ending; None: to be found out from the text.
        folder: where paths inside the file start.
    """

    name: str
    data: bytes
    format: Format | None
    folder: Path


def read_source(source: str | Path, stdin: BinaryIO | None = None, expected: str = EXPECTED) -> Source:
    """Read `source`, which is to be what is `expected`; "-" is standard input.

    Raises:
        GraphError: KG301 when it cannot be read, KG302 when it is no graph file, KG307 when it is too large.
    """
    if source == "-":
        data = _read_stdin(stdin)
        return Source(STDIN, data, None, Path())
    name = os.fspath(source)
    path = Path(name)
    data, regular = _read_file(name, path, expected)
    form = _FORMATS.get(path.suffix.lower())
    # A pipe such as /dev/fd/63 has no name to go by.
    if form is None and regular:
        raise not_a_graph(name, _kind(data), path.suffix, expected)
    return Source(name, data, form, path.parent)


def decode(data: bytes, name: str, expected: str = EXPECTED) -> str:
    """`data` as text, a byte order mark removed.

    Raises:
        GraphError: KG302 for another kind of file, KG303 for an empty file, KG304 for text that is not UTF-8.
    """
    kind = binary_kind(data)
    if kind is not None:
        raise not_a_graph(name, kind, expected=expected)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = len(data[data.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8", "replace")) + 1
        raise GraphError(
            f"byte 0x{data[error.start]:02X} is not valid UTF-8",
            code="KG304",
            where=Place(name, (), line, column),
            help=f"expected {expected} in UTF-8",
        ) from None
    text = text.removeprefix(_BOM)
    if not text.strip():
        raise GraphError("the file is empty", code="KG303", where=name, help=f"expected {expected}")
    return text


def format_of(text: str) -> Format:
    """JSON or YAML, by how `text` starts: `{"`, `{}` and `[` are JSON."""
    start = text[:1_000].lstrip()
    return "json" if start[:1] == "[" or (start[:1] == "{" and start[1:].lstrip()[:1] in ('"', "}")) else "yaml"


def not_a_graph(name: str, kind: str | None, suffix: str | None = None, expected: str = EXPECTED) -> GraphError:
    """KG302: the file is of another kind."""
    if kind is None:
        ending = f"its name ends in {suffix}" if suffix else "its name has no ending"
        return GraphError(f"{ending}, expected {expected}", code="KG302", where=name, help="rename the file")
    help = help_for(kind) if expected == EXPECTED else None
    return GraphError(f"looks like {kind}, expected {expected}", code="KG302", where=name, help=help)


def _kind(data: bytes) -> str | None:
    return binary_kind(data) or text_kind(data[:20_000].decode("utf-8", "replace"))


def _read_stdin(stdin: BinaryIO | None) -> bytes:
    stream = stdin or getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise GraphError("there is no standard input", code="KG301", where=STDIN)
    try:
        data: bytes = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise GraphError(f"cannot be read: {error.strerror or error}", code="KG301", where=STDIN) from None
    _check_size(STDIN, len(data))
    return data


def _read_file(name: str, path: Path, expected: str) -> tuple[bytes, bool]:
    """The content, and whether the path is a regular file."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            help = _graphs_in(path) if expected == EXPECTED else None
            raise GraphError(f"is a folder, expected {expected}", code="KG301", where=name, help=help)
        _check_size(name, status.st_size)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise GraphError("no such file", code="KG301", where=name, help=_near(path)) from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise GraphError(f"cannot be read: {reason}", code="KG301", where=name) from None
    _check_size(name, len(data))
    return data, stat.S_ISREG(status.st_mode)


def _check_size(name: str, size: int) -> None:
    if size > MAX_BYTES:
        raise GraphError(
            f"the file is larger than {MAX_BYTES >> 20} MiB",
            code="KG307",
            where=name,
            help="keep tensors in .npy, .npz or .safetensors files and name them with `data`",
        )


def _graphs_in(folder: Path) -> str | None:
    try:
        names = sorted(p.name for p in folder.iterdir() if p.suffix.lower() in _FORMATS)
        names = [name for name in names if not name.endswith(".schema.json")]
    except OSError:
        return None
    return f"graphs in it: {', '.join(names[:5])}" if names else None


def _near(path: Path) -> str | None:
    try:
        return did_you_mean(path.name, [p.name for p in path.parent.iterdir()])
    except (OSError, ValueError):
        return None
