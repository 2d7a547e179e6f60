"""A checked graph as plain values and back, so that a file which was checked before need not be checked again.

What comes back looks as the records of `graphs.schema` do to everybody who reads them, and needs neither their classes
nor the library that checks them: a tenth of a second of each command's start.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from kgrun.graphs.schema.origin import ORIGIN, Origin, Sourced

if TYPE_CHECKING:
    from pathlib import Path

    from kgrun.graphs.schema.graph import KernelGraph

_ALIASES = {"schema_": "$schema"}
# Beside the fields: of a graph, where it came from; of a kernel, what its source is.
_MORE: dict[str, type] = {"KernelGraph": Origin, "KernelSpec": Sourced}
_TUPLE = ""  # stands where the kind of a record would: what follows is a tuple


class Plain:
    """A record: what the file says in its `__dict__`, defaults of the rest in its class. Frozen, compared by value."""

    fields: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plain) or type(self).__name__ != type(other).__name__:
            return NotImplemented
        return all(getattr(self, name, None) == getattr(other, name, None) for name in self.fields)

    __hash__ = None  # type: ignore[assignment]  # as of a record that has lists

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.fields if name in self.__dict__)
        return f"{type(self).__name__}({said})"

    def model_copy(self, *, update: dict[str, Any]) -> Any:
        """The same with some fields changed."""
        return _made(type(self), {**self.__dict__, **update})

    def model_dump(self, *, mode: str, by_alias: bool, exclude_unset: bool) -> dict[str, Any]:
        """What the file says, as values of JSON."""
        assert (mode, by_alias, exclude_unset) == ("json", True, True)
        said = {_ALIASES.get(name, name): self.__dict__[name] for name in self.fields if name in self.__dict__}
        return cast("dict[str, Any]", _dumped(said))


def packed(graph: KernelGraph) -> bytes:
    """A graph that `parse_graph` made, without where it came from."""
    kinds: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {}

    def pack(value: Any) -> Any:
        if isinstance(value, list):
            return [pack(item) for item in value]
        if isinstance(value, dict):
            return {key: pack(item) for key, item in value.items()}
        if isinstance(value, tuple):
            return (_TUPLE, [pack(item) for item in value])
        if not hasattr(value, "model_fields_set"):
            return value
        kind, fields = type(value).__name__, type(value).model_fields
        if kind not in kinds:
            kinds[kind] = (tuple(fields), {})
            defaults = {name: each.get_default(call_default_factory=True) for name, each in fields.items()
                        if not each.is_required()}  # fmt: skip
            kinds[kind] = (tuple(fields), cast("dict[str, Any]", pack(defaults)))
        return (kind, {name: pack(getattr(value, name)) for name in fields if name in value.model_fields_set})

    whole = pack(graph)
    return marshal.dumps((kinds, whole))


def unpacked(
    data: bytes, *, file: str, folder: Path | None, allow_external: bool, locate: Callable[..., Any]
) -> KernelGraph:
    """The graph again, from another file or the same.

    Args:
        locate: line and column of what stands at a path.

    Raises:
        ValueError: these are no bytes of `packed`.
    """
    try:
        kinds, whole = marshal.loads(data)
        classes = {kind: _class(kind, fields) for kind, (fields, _) in kinds.items()}

        def unpack(value: Any) -> Any:
            if isinstance(value, list):
                return [unpack(item) for item in value]
            if isinstance(value, dict):
                return {key: unpack(item) for key, item in value.items()}
            if not isinstance(value, tuple):
                return value
            kind, content = value
            return tuple(unpack(content)) if kind == _TUPLE else _made(classes[kind], unpack(content))

        for kind, (_, defaults) in kinds.items():
            for name, value in defaults.items():
                setattr(classes[kind], name, unpack(value))
        graph = unpack(whole)
    except (EOFError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no packed graph: {error}") from None
    for name, value in zip(ORIGIN, (file, folder, allow_external, locate, None), strict=True):
        graph.__dict__[name] = value
    return cast("KernelGraph", graph)


@cache
def _class(kind: str, fields: tuple[str, ...]) -> type[Plain]:
    bases = (_MORE[kind], Plain) if kind in _MORE else (Plain,)
    return type(kind, bases, {"fields": fields})


def _made(kind: type[Plain], fields: dict[str, Any]) -> Plain:
    made = kind.__new__(kind)
    made.__dict__.update(fields)
    return made


def _dumped(value: Any) -> Any:
    if isinstance(value, Plain):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, dict):
        return {key: _dumped(item) for key, item in value.items()}
    return [_dumped(item) for item in value] if isinstance(value, (list, tuple)) else value
