"""pydantic's validation errors as ours: clean paths, places, plain words, and of a union only the branch that fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from kgrun.graphs.errors import GraphError, PathPart, did_you_mean
from kgrun.graphs.expressions import parse
from kgrun.graphs.load.document import Document, Path
from kgrun.graphs.load.limits import MAX_FAULTS
from kgrun.graphs.load.schema_paths import Annotations, keys, step, tagged
from kgrun.graphs.load.schema_words import described, expectation, message
from kgrun.graphs.records import dataclass
from kgrun.graphs.schema.graph import KernelGraph

_FOREIGN = (
    ({"arg_nodes", "heads"}, "this is the graph of a TVM graph executor, not of kgrun"),
    ({"launches"}, "this is a launch list: turn it into a graph with `kgrun import`"),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One validation error.

    Attributes:
        path: keys and indices of the file only.
        splits: the branches of untagged unions it went through: where (length of `path` there) and which.
        annotations: the types that may stand at `path`'s parent.
        type, context, value: as pydantic has them; for a missing key, `path` ends at the record and `key` names it.
    """

    path: Path
    splits: tuple[tuple[int, str], ...]
    annotations: Annotations
    type: str
    context: Mapping[str, Any]
    value: object
    key: str | None = None


def schema_error(error: ValidationError, document: Document) -> GraphError:
    """The first fault in the file's order, with the others in `others`."""
    root = document.value
    faults = [_fault(row, root) for row in error.errors(include_url=False)]
    kept = _without_echoes(_relevant(faults, 0))
    found = collected([_graph_error(fault, document) for fault in kept[:MAX_FAULTS]])
    if len(kept) > MAX_FAULTS:
        found.details = {**found.details, "faults": len(kept)}
    return found


def collected(errors: Sequence[GraphError]) -> GraphError:
    """One of `errors` to raise, the first in the file's order; `others` has the rest."""
    ordered = sorted(errors, key=lambda e: (e.where.line or 0, e.where.column or 0) if e.where else (0, 0))
    first, *others = ordered
    first.others = (*first.others, *others)
    return first


def _fault(row: Any, root: object) -> Fault:
    """Separate the file's own keys in `row["loc"]` from pydantic's names for branches."""
    annotations: Annotations = [KernelGraph]
    parent = annotations
    path: list[PathPart] = []
    splits: list[tuple[int, str]] = []
    value = root
    *_, last = row["loc"] or ("",)
    key = str(last) if row["type"] == "missing" else None
    for part in row["loc"][:-1] if key is not None else row["loc"]:
        if branch := tagged(annotations, part):
            annotations = branch
        elif _holds(value, part):
            path.append(part)
            parent, annotations = annotations, step(annotations, part)
            value = value[part]  # type: ignore[index]
        elif part != "[key]":
            splits.append((len(path), str(part)))
    return Fault(tuple(path), tuple(splits), parent, row["type"], row.get("ctx", {}), row["input"], key)


def _holds(value: object, part: PathPart) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, (list, tuple)) and isinstance(part, int) and 0 <= part < len(value)


def _relevant(faults: list[Fault], depth: int) -> list[Fault]:
    """`faults` with every union, from its `depth`-th split on, reduced to the branch that was meant."""
    kept: list[Fault] = []
    unions: dict[Path, dict[str, list[Fault]]] = {}
    for fault in faults:
        if len(fault.splits) <= depth:
            kept.append(fault)
            continue
        length, label = fault.splits[depth]
        unions.setdefault(fault.path[:length], {}).setdefault(label, []).append(fault)
    for path, branches in unions.items():
        fitting = [branch for branch in branches.values() if not any(_mismatch(f, path, depth) for f in branch)]
        if fitting:
            # A list of choices is the weakest hint: another branch that fits by type says more.
            fitting.sort(key=lambda branch: branch[0].type == "literal_error")
            kept += _relevant(fitting[0], depth + 1)
        else:
            kept.append(_no_branch(path, branches))
    return kept


def _mismatch(fault: Fault, path: Path, depth: int) -> bool:
    """Whether the value at the union itself has a type that this branch does not take."""
    if len(fault.splits) > depth + 1 or fault.path != path or fault.key is not None:
        return False
    if fault.type == "literal_error":
        return not isinstance(fault.value, str)
    return fault.type.endswith("_type")


def _no_branch(path: Path, branches: Mapping[str, list[Fault]]) -> Fault:
    first = next(iter(branches.values()))[0]
    words = [
        expectation(f.type, label, f.context)
        for label, branch in branches.items()
        for f in branch
        if f.path == path and f.key is None
    ]
    context = {"expected": list(dict.fromkeys(words))}
    return Fault(path, (), first.annotations, "no_branch", context, first.value)


def _without_echoes(faults: list[Fault]) -> list[Fault]:
    """Leave out a missing key that stands there misspelt: the unknown key's message says it."""
    unknown: dict[Path, list[str]] = {}
    for fault in faults:
        if fault.type == "extra_forbidden":
            unknown.setdefault(fault.path[:-1], []).append(str(fault.path[-1]))
    return [
        fault
        for fault in faults
        if fault.key is None or not any(did_you_mean(name, [fault.key]) for name in unknown.get(fault.path, ()))
    ]


def _graph_error(fault: Fault, document: Document) -> GraphError:
    unknown = fault.type == "extra_forbidden"
    where = document.place(fault.path, key=unknown)
    if fault.key is not None:
        help = "a graph file starts with `kgrun: 1`, the format's version" if fault.key == "kgrun" else None
        if not fault.path:
            help = _foreign(document.value) or help
        if isinstance(fault.value, list):
            return GraphError(f"must have {int(fault.key) + 1} items, has {fault.key}", code="KG314", where=where)
        return GraphError(f"missing key {fault.key!r}", code="KG312", where=where, help=help)
    if unknown:
        known = keys(fault.annotations)
        help = did_you_mean(str(fault.path[-1]), known) or f"known keys: {', '.join(known)}"
        return GraphError(f"unknown key {str(fault.path[-1])!r}", code="KG311", where=where, help=help)
    if fault.path == ("kgrun",):
        text = f"format version {described(fault.value)} is not known"
        return GraphError(text, code="KG316", where=where, help="this kgrun reads version 1: `kgrun: 1`")
    if fault.type == "value_error" and isinstance(fault.value, str) and (found := _expression_error(fault.value)):
        return found.at(where)
    code, text = message(fault.type, fault.context, fault.value)
    return GraphError(text, code=code, where=where, help=_help(fault))


def _help(fault: Fault) -> str | None:
    if fault.type == "literal_error" and isinstance(fault.value, str):
        return did_you_mean(fault.value, _quoted(fault.context["expected"]))
    if fault.type in ("node_kind", "init_kind") and isinstance(fault.value, dict):
        choices = ("kernel", "op") if fault.type == "node_kind" else ("uniform", "normal", "integers", "fill", "arange")
        guesses = [f"{key!r}: {guess}" for key in fault.value if (guess := did_you_mean(str(key), choices))]
        return guesses[0] if guesses and not set(fault.value) & set(choices) else None
    return None


def _quoted(expected: str) -> Iterable[str]:
    return expected.replace("' or '", "', '").strip("'").split("', '")


def _expression_error(text: str) -> GraphError | None:
    try:
        parse(text)
    except GraphError as error:
        return error
    return None


def _foreign(root: object) -> str | None:
    return next((help for marks, help in _FOREIGN if isinstance(root, dict) and marks <= root.keys()), None)
