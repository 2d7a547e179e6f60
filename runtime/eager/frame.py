"""What one pass through a body holds: tensors by name, for as long as something still reads them."""

from __future__ import annotations

from kgrun.runtime.eager.body import Body
from kgrun.runtime.eager.store import Tensor


class Frame:
    """One pass through a body: the tensors that are still needed, each held once by its name.

    Attributes:
        path: of the control nodes that led here, before the names of steps: "" or "loop.".
        top: position in the whole graph of the node that runs now.
    """

    def __init__(self, body: Body, path: str, outer: Frame | None, top: int) -> None:
        self.body, self.path, self.outer, self.top = body, path, outer, top
        self.tensors: dict[str, Tensor] = {}
        self.left = dict(body.uses)

    def find(self, name: str) -> Tensor | None:
        """The tensor of a name that was given or made, here or outside."""
        found = self.tensors.get(name)
        if found is not None:
            return found
        if name in self.body.statics:
            return self.body.statics[name]
        return self.outer.find(name) if self.outer is not None else None
