"""References to data files in a graph: `x.npy`, `x.npz#key`, `x.safetensors#key`, `x.onnx#key`; where they may lead."""

from __future__ import annotations

import re
from pathlib import Path

from kgrun.graphs.errors import GraphError
from kgrun.graphs.records import dataclass

_WITH_KEY = re.compile(r"(?P<file>.+?\.(?P<form>npz|safetensors|onnx))#(?P<key>.+)", re.IGNORECASE | re.DOTALL)
_ENDINGS = (".npy", ".npz", ".safetensors", ".onnx")
_FORMS = "data is file.npy, file.npz#key, file.safetensors#key or file.onnx#key"


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed reference: the file as written, its form ("npy", "npz", "safetensors" or "onnx"), the key inside it."""

    file: str
    form: str
    key: str | None


def parse_reference(reference: str, *, default_key: str | None = None) -> Reference:
    """Split `reference`; an archive without `#key` takes `default_key`. GraphError KG370 if it is malformed."""
    if found := _WITH_KEY.fullmatch(reference):
        return Reference(found["file"], found["form"].lower(), found["key"])
    for ending in _ENDINGS:
        if reference.lower().endswith(ending):
            form = ending[1:]
            if form != "npy" and default_key is None:
                raise GraphError(
                    f"{reference!r} does not say which array of the file", code="KG370", help=f"add #key: {_FORMS}"
                )
            return Reference(reference, form, None if form == "npy" else default_key)
    if re.search(r"\.npy#", reference, re.IGNORECASE):
        raise GraphError(f"{reference!r}: a .npy file holds one array, no #key", code="KG370", help=_FORMS)
    raise GraphError(f"{reference!r} names no data file", code="KG370", help=_FORMS)


def inside(path: str, *, folder: Path, allow_external: bool = False) -> Path:
    """`path`, seen from `folder`, with symbolic links followed.

    Raises:
        GraphError: KG371 when it is absolute or ends up outside `folder` and `allow_external` is false; KG372 when
            it cannot be resolved.
    """
    try:
        base = folder.resolve()
        target = (base / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise GraphError(f"{path!r} is no usable path: {error}", code="KG372") from None
    if not allow_external and (Path(path).is_absolute() or not target.is_relative_to(base)):
        raise GraphError(
            f"{path!r} leaves the graph's folder",
            code="KG371",
            help="move the file beside the graph, or pass --allow-external-data",
        )
    return target
