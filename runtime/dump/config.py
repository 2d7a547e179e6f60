"""What to dump, from the command line or from a configuration file (S136)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from kgrun.graphs.errors import GraphError, KgrunError, PathPart, did_you_mean
from kgrun.graphs.load.document import Document
from kgrun.graphs.load.json_text import read_json
from kgrun.graphs.load.source import decode, read_source
from kgrun.graphs.records import dataclass
from kgrun.runtime.dump.iterations import Iterations, parse_iterations

ALL = "all"
_ABSOLUTE = re.compile(r"/[A-Za-z0-9_/-]*")
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_COMMON = {
    "dump_mode": int,
    "path": str,
    "net_name": str,
    "iteration": str,
    "input_output": int,
    "kernels": list,
    "support_device": list,
    "op_debug_mode": int,
}
_EXPECTED = "a dump configuration (.json)"
_E2E = {"enable": bool, "trans_flag": bool}
_WORDS: Mapping[type, str] = {int: "an integer", str: "a string", list: "a list", bool: "true or false"}
_MOST: Mapping[str, int] = {"dump_mode": 1, "input_output": 2, "op_debug_mode": 3}


@dataclass(frozen=True, slots=True)
class DumpConfig:
    """What to dump, when, and where to.

    Attributes:
        names: tensors and nodes; a node stands for what it reads and writes. `all` stands for everything.
        folder: of the files: one folder an iteration in it.
        iterations: those that are dumped, counted from 0.
        inputs, outputs: whether a node's inputs, and its outputs, are dumped; a tensor that is named is dumped anyway.
        devices: indices of the devices on which it is on; None: all.
        enabled: False where the configuration switches it off (B25).
        source: the configuration's text, copied beside the files; None for a dump asked for otherwise.
    """

    names: tuple[str, ...]
    folder: Path
    iterations: Iterations = field(default_factory=lambda: Iterations(((0, 0),)))
    inputs: bool = False
    outputs: bool = True
    devices: frozenset[int] | None = None
    enabled: bool = True
    source: str | None = None

    @property
    def everything(self) -> bool:
        """Whether all tensors are dumped."""
        return ALL in self.names


def read_config(file: str) -> DumpConfig:
    """The configuration in a JSON file.

    Raises:
        GraphError: KG301 to KG308 for the file, KG392 for what is missing, unknown or out of range; `others` has the
            further faults.
    """
    found = read_source(file, None, _EXPECTED)
    text = decode(found.data, found.name, _EXPECTED)
    document = read_json(text, found.name)
    faults: list[GraphError] = []
    root = _record(document, (), {"common_dump_settings": dict, "e2e_dump_settings": dict}, faults)
    common: dict[str, Any] = {}
    if isinstance(root.get("common_dump_settings"), dict):
        common = _record(document, ("common_dump_settings",), _COMMON, faults)
        _missing(document, ("common_dump_settings",), _COMMON, common, faults)
        _check_values(document, common, faults)
    elif "common_dump_settings" not in root and isinstance(document.value, dict):
        _missing(document, (), ["common_dump_settings"], root, faults)
    e2e: dict[str, Any] = {"enable": True}
    if isinstance(root.get("e2e_dump_settings"), dict):
        e2e = _record(document, ("e2e_dump_settings",), _E2E, faults)
        _missing(document, ("e2e_dump_settings",), _E2E, e2e, faults)
    if faults:
        first, *others = sorted(faults, key=lambda e: (e.where.line or 0, e.where.column or 0) if e.where else (0, 0))
        first.others = tuple(others)
        raise first
    both = common["input_output"]
    return DumpConfig(
        names=(ALL,) if common["dump_mode"] == 0 else tuple(dict.fromkeys(common["kernels"])),
        folder=Path(common["path"]) / common["net_name"],
        iterations=parse_iterations(common["iteration"]),
        inputs=both in (0, 1),
        outputs=both in (0, 2),
        devices=frozenset(common["support_device"]),
        enabled=bool(e2e["enable"]),
        source=text,
    )


def _fault(document: Document, path: tuple[PathPart, ...], message: str, help: str | None = None) -> GraphError:
    return GraphError(message, code="KG392", where=document.place(path), help=help)


def _record(
    document: Document, path: tuple[PathPart, ...], kinds: Mapping[str, type], faults: list[GraphError]
) -> dict[str, Any]:
    """The members at `path` that are known and of their kind."""
    value: Any = document.value
    for part in path:
        value = value[part]
    if not isinstance(value, dict):
        faults.append(_fault(document, path, "a dump configuration is a mapping"))
        return {}
    kept = {}
    for key, item in value.items():
        if key not in kinds:
            help = did_you_mean(key, kinds) or f"keys: {', '.join(kinds)}"
            faults.append(_fault(document, (*path, key), f"unknown key {key!r}", help))
        elif not isinstance(item, kinds[key]) or (kinds[key] is int and isinstance(item, bool)):
            wanted = _WORDS.get(kinds[key], "a mapping")
            faults.append(_fault(document, (*path, key), f"{key} is {item!r}, not {wanted}"))
        else:
            kept[key] = item
    return kept


def _missing(
    document: Document,
    path: tuple[PathPart, ...],
    wanted: Iterable[str],
    there: Mapping[str, Any],
    faults: list[GraphError],
) -> None:
    refused = {str(fault.where.path[-1]) for fault in faults if fault.where is not None and fault.where.path}
    lacking = [key for key in wanted if key not in there and key not in refused]
    faults.extend(_fault(document, path, f"{key} is missing") for key in lacking)


def _check_values(document: Document, common: dict[str, Any], faults: list[GraphError]) -> None:
    def refuse(key: str, message: str, help: str | None = None) -> None:
        faults.append(_fault(document, ("common_dump_settings", key), message, help))

    for key, most in _MOST.items():
        if key in common and not 0 <= common[key] <= most:
            refuse(key, f"{key} is {common[key]}, not 0 to {most}")
    if "path" in common and not _ABSOLUTE.fullmatch(common["path"]):
        refuse("path", f"path {common['path']!r} is not absolute, or has other characters than letters, digits, - _ /")
    if "net_name" in common and not _WORD.fullmatch(common["net_name"]):
        refuse("net_name", f"net_name {common['net_name']!r} has other characters than letters, digits, - and _")
    if "iteration" in common:
        try:
            parse_iterations(common["iteration"])
        except KgrunError as error:
            refuse("iteration", error.message, error.help)
    if not all(isinstance(name, str) and name for name in common.get("kernels", ())):
        refuse("kernels", "kernels is a list of names")
    elif common.get("dump_mode") == 1 and common.get("kernels") == []:
        refuse("kernels", "dump_mode 1 dumps the kernels listed, and none is")
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in common.get("support_device", ())):
        refuse("support_device", "support_device is a list of device numbers")
