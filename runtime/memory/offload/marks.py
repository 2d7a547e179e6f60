"""What the file itself wants on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgrun.runtime.program import Program


def marked_tensors(program: Program) -> frozenset[str]:
    """Tensors that the file wants on the host while they are not used (S96)."""
    found = set()
    for name, tensor in program.graph.tensors.items():
        if tensor.spec is not None and (tensor.spec.offload == "always" or tensor.spec.location == "host"):
            found.add(name)
    for node in program.graph.nodes:
        if node.spec.offload:
            found.update(node.written_names())
    return frozenset(found)
