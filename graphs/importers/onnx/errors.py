"""What cannot be imported: collected over the whole model, reported together."""

from __future__ import annotations

from dataclasses import dataclass, field

from kgrun.graphs.errors import GraphError, PathPart, Place


class Unsupported(Exception):
    """A node that kgrun has no way to run, and why. Caught where nodes are walked.

    `types`: the operator is there, but not for these types and shapes; no fault in a branch that is never taken.
    """

    def __init__(self, reason: str, *, help: str | None = None, code: str = "KG381", types: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.help, self.code, self.types = reason, help, code, types


@dataclass(slots=True)
class Faults:
    """All that was found so far, in the order of the model's nodes."""

    file: str
    found: list[GraphError] = field(default_factory=list)

    def add(self, where: tuple[PathPart, ...], node: str, op: str, error: Unsupported) -> None:
        """Note that `node` cannot be imported."""
        text = f"node {node!r} ({op}): {error.reason}"
        self.found.append(GraphError(text, code=error.code, where=Place(self.file, where), help=error.help))

    def raise_any(self) -> None:
        """GraphError for the first fault, with the others in `others`; nothing where there is none."""
        if self.found:
            first = self.found[0]
            first.others = tuple(self.found[1:])
            first.details = {"unsupported": [fault.message for fault in self.found]}
            raise first
