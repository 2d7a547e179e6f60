"""The bundle's folder: written beside its place under another name, looked at once more, and then moved there."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from kgrun.graphs.bound import BoundGraph, BoundNode
from kgrun.graphs.data import file_name, save_bytes, save_npz
from kgrun.graphs.data_save import instead_of
from kgrun.graphs.errors import KgrunError, UsageError
from kgrun.graphs.records import dataclass
from kgrun.graphs.termination import unwound
from kgrun.graphs.whole_files import beside
from kgrun.runtime.program import Launch
from kgrun.runtime.repro.arrays import LIMIT_BYTES, Array, Stored, store_arrays
from kgrun.runtime.repro.folder import check_folder
from kgrun.runtime.repro.slice import Document, cut_graph, kept_nodes, set_kernel
from kgrun.runtime.repro.sources import copy_sources

__all__ = ["LIMIT_BYTES", "Bundle", "Case", "write_bundle"]

GRAPH = "graph.json"


@dataclass(frozen=True, slots=True)
class Case:
    """What is to run again: a failed run, or one whose outputs are to come out the same.

    Attributes:
        bound: the graph as it ran.
        given: arrays by name that were given for this run.
        seed: of generated arrays.
        node: the node at fault, after which the graph is cut; None keeps all of it.
        options: words that the run needs besides the graph and its inputs: `--device cuda:0 …`.
        error: the failure as its JSON document; None for a run that did not fail.
        command: the words of the command that ran.
        arch: architecture that kernels were compiled for; None leaves cubins out.
        files: further files to keep, by their name in the bundle.
        outputs: what the run made, to compare with.
        notes: what else whoever runs it again should know.
    """

    bound: BoundGraph
    given: Mapping[str, Array]
    seed: int
    node: str | None
    options: Sequence[str]
    error: Mapping[str, object] | None
    command: Sequence[str]
    arch: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    outputs: Mapping[str, Array] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Bundle:
    """What was written: the command that runs it again from anywhere, and notes on what it lacks."""

    folder: Path
    command: str
    notes: tuple[str, ...]


@unwound()
def write_bundle(folder: Path, case: Case) -> Bundle:
    """Write the bundle; it is complete or absent.

    Raises:
        UsageError: KG258 or KG270 where it cannot be written.
    """
    check_folder(folder)
    folder = Path(os.path.realpath(folder)) if folder.is_symlink() else folder.absolute()  # a link stays one
    try:
        staging = beside(folder)
        staging.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}", code="KG258") from None
    try:
        with instead_of(staging, folder):
            words, notes = _fill(staging, case)
        if folder.is_dir():
            folder.rmdir()
        os.rename(staging, folder)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}", code="KG258") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Bundle(folder, shlex.join(_command(words, folder)), tuple(notes))


def _fill(staging: Path, case: Case) -> tuple[list[str], list[str]]:
    """Write all files; the words after `kgrun execute` with places seen from the bundle, and notes."""
    notes = list(case.notes)
    nodes = kept_nodes(case.bound, case.node)
    stored = _write_graph(staging, case, nodes)
    if len(nodes) < len(case.bound.nodes):
        try:
            _try(staging, stored.external)
            notes.append(
                f"the graph ends with node {case.node!r}; {len(case.bound.nodes) - len(nodes)} later nodes are left out"
            )
        except KgrunError:  # what is left does not stand alone
            nodes = kept_nodes(case.bound, None)
            stored = _write_graph(staging, case, nodes)
    notes += stored.notes
    if case.arch is not None:
        notes += _write_cubins(staging, case, nodes)
    for name, path in case.files.items():
        shutil.copyfile(path, staging / name)
    words = [f"./{GRAPH}", *case.options]
    words += ["--inputs", f"./{stored.inputs}"] if stored.inputs else []
    if case.outputs:
        save_npz(staging / "expected.npz", case.outputs)
        words += ["--expected", "./expected.npz"]
    words += ["--allow-external-data"] if stored.external and "--allow-external-data" not in case.options else []
    if case.error is not None:
        _save_json(staging / "error.json", case.error)
    _save_json(staging / "versions.json", _versions())
    save_bytes(staging / "README.md", _readme(case, words, notes).encode("utf-8", "backslashreplace"))
    return words, notes


def _write_graph(staging: Path, case: Case, nodes: list[BoundNode]) -> Stored:
    document: Document = cut_graph(case.bound, nodes)
    for name, changes in copy_sources(case.bound, list(document["kernels"]), staging).items():
        set_kernel(document, name, changes)
    stored = store_arrays(staging, document, case.bound, nodes, case.given, case.seed)
    _save_json(staging / GRAPH, document)
    return stored


def _try(staging: Path, external: bool) -> None:
    """Load and bind what was written: KgrunError where that fails."""
    from kgrun.graphs.bind import bind
    from kgrun.graphs.load import load_graph
    from kgrun.graphs.operators.base import ValueUnknown

    with suppress(ValueUnknown):  # the given inputs tell it
        bind(load_graph(str(staging / GRAPH), allow_external_data=external))


def _write_cubins(staging: Path, case: Case, nodes: list[BoundNode]) -> list[str]:
    """The machine code of each kernel, from the compile cache where it is there; notes on those that have none."""
    from kgrun.runtime.devices.cuda_code import kernel_image
    from kgrun.runtime.lower import lower

    wanted = {node.launch.kernel for node in nodes if node.launch is not None}
    try:
        steps = lower(case.bound, "cuda").steps
    except KgrunError as error:
        return [f"no cubins: {error.message}"]
    codes = {step.work.code.kernel: step.work.code for step in steps if isinstance(step.work, Launch)}
    missing = []
    for name in sorted(wanted & codes.keys()):
        if codes[name].language != "cuda":
            continue
        try:
            image = kernel_image(codes[name], case.arch or "")
        except KgrunError:
            missing.append(name)
            continue
        (staging / "cubins").mkdir(exist_ok=True)
        save_bytes(staging / "cubins" / f"{file_name(name)}.{case.arch}.cubin", image)
    return [f"no cubin of {', '.join(missing)}: the source does not compile"] if missing else []


def _versions() -> dict[str, Any]:
    from kgrun.graphs.version import __version__
    from kgrun.runtime.devices import doctor

    return {"kgrun": __version__} | doctor.document(doctor.diagnose())


def _command(words: Sequence[str], folder: Path) -> list[str]:
    places = [str(folder / word[2:]) if word.startswith("./") else word for word in words]
    return ["kgrun", "execute", *places]


def _readme(case: Case, words: Sequence[str], notes: Sequence[str]) -> str:
    where = f" at node {case.node!r}" if case.node else ""
    failed = case.error is not None
    error = case.error.get("error") if case.error is not None else None
    text = error.get("message") if isinstance(error, dict) else None
    told = "`error.json` the failure" if failed else "`expected.npz` what it made"
    lines = [
        f"# A {'failed ' if failed else ''}run of {case.bound.source.name}{where}",
        "",
        *(f"    {line}" for line in str(text or "").splitlines()),
        "",
        "Run it again, in this folder:",
        "",
        f"    {shlex.join(['kgrun', 'execute', *words])}",
        "",
        "What failed was:" if failed else "What ran was:",
        "",
        f"    {shlex.join(['kgrun', *case.command])}",
        "",
        "`graph.json` is the graph, `sources/` its kernels and their headers, `cubins/` what they compiled to,",
        f"`inputs.npz` and `weights.safetensors` its data, {told}, `versions.json` the software.",
        *(["", *(f"- {note}" for note in notes)] if notes else []),
        "",
    ]
    return "\n".join(lines)


def _save_json(path: Path, document: Mapping[str, Any]) -> None:
    save_bytes(path, (json.dumps(document, indent=1, allow_nan=False, default=str) + "\n").encode())
