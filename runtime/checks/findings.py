"""What a check found: one record a distinct fault, and the error that ends the command after a checked run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgrun.graphs.bound import Dim3
from kgrun.graphs.errors import CheckFailed, Place
from kgrun.graphs.records import dataclass

_CODES = {
    "bounds": "KG810",
    "race": "KG811",
    "init": "KG812",
    "barrier": "KG813",
    "nan": "KG814",
    "readonly": "KG815",
    "redzone": "KG816",
}


@dataclass(frozen=True, slots=True)
class Other:
    """The other access of a race, or another thread that waits."""

    where: Place | None
    operation: str
    block: Dim3
    thread: Dim3

    def to_json(self) -> dict[str, object]:
        """A plain mapping."""
        where = str(self.where) if self.where else None
        return {"where": where, "operation": self.operation, "block": list(self.block), "thread": list(self.thread)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One distinct fault.

    Attributes:
        check: name of the check; "trap" for a kernel that ended itself.
        message: one sentence with the node, the tensor, the element.
        where: the source line where that is known, else the node in the graph file.
        node, op: the node's name, and its kernel or operator.
        tensor: the tensor, workspace or shared variable; "" where there is none to name.
        element: linear index of the first element concerned, None where it is none of the tensor's.
        block, thread: of the first access; None where the check does not follow threads.
        count: accesses or elements that share the fault.
    """

    check: str
    message: str
    where: Place | None
    node: str
    op: str
    tensor: str = ""
    element: int | None = None
    block: Dim3 | None = None
    thread: Dim3 | None = None
    count: int = 1
    other: Other | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for findings that are the same fault."""
        places = {str(self.where)} | ({str(self.other.where)} if self.other else set())  # a race is seen from both ends
        return self.check, self.node, frozenset(places), self.tensor, self.message if self.block is None else ""

    def to_json(self) -> dict[str, object]:
        """A row of the document's `checks`."""
        return {
            "check": self.check,
            "message": self.message,
            "where": str(self.where) if self.where else None,
            "node": self.node,
            "op": self.op,
            "tensor": self.tensor or None,
            "element": self.element,
            "block": list(self.block) if self.block else None,
            "thread": list(self.thread) if self.thread else None,
            "count": self.count,
            "other": self.other.to_json() if self.other else None,
        }

    def to_error(self, others: Iterable[CheckFailed] = ()) -> CheckFailed:
        """The finding as an error; its details are the row without what the error says itself."""
        row = self.to_json()
        details = {name: row[name] for name in row if name not in ("message", "where") and row[name] is not None}
        return CheckFailed(
            self.message, code=_CODES.get(self.check, "KG800"), where=self.where, details=details, others=others
        )


def failure(findings: Sequence[Finding]) -> CheckFailed | None:
    """One error with all findings, None where there are none."""
    if not findings:
        return None
    first, *rest = findings
    return first.to_error([finding.to_error() for finding in rest])
