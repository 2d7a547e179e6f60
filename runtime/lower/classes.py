"""Alias classes: which tensors share their bytes, and why.

Views (Reshape and its like), declared in-place outputs (S39), inputs declared as aliases (S24), and in-place outputs
that kgrun grants on its own where an input dies at an operator that may overwrite it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kgrun.graphs.bound import BoundGraph, BoundNode
from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators import lookup
from kgrun.graphs.schema.nodes import OpNode
from kgrun.runtime.program import Decision

_EXTERNAL = ("input", "parameter", "constant")


@dataclass(slots=True)
class AliasClasses:
    """A partition of the tensors.

    Attributes:
        owner: tensor -> the tensor that owns the bytes it lives in.
        members: owner -> its tensors, in the order they joined.
        reasons: tensor -> why it lives in another's bytes.
        decisions: what became of each in-place request.
        forwarded: indices of nodes that need no kernel because their output is a view.
        known: results of nodes that run nothing; loaded once, so never overwritten.
    """

    owner: dict[str, str] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    forwarded: set[int] = field(default_factory=set)
    known: set[str] = field(default_factory=set)

    def add(self, name: str) -> None:
        """A tensor with bytes of its own."""
        self.owner[name] = name
        self.members[name] = [name]

    def join(self, name: str, other: str, reason: str) -> None:
        """Let `name` live in the bytes of `other`."""
        owner = self.owner[other]
        self.owner[name] = owner
        self.members[owner].append(name)
        self.reasons[name] = reason

    def of(self, name: str) -> list[str]:
        """The tensors that share the bytes of `name`, itself included."""
        return self.members[self.owner[name]]


def alias_classes(bound: BoundGraph, *, reuse: bool = True, folded: frozenset[int] = frozenset()) -> AliasClasses:
    """The alias classes of `bound`, in execution order.

    Args:
        reuse: grant in-place outputs that the file does not ask for; off in `none` mode.
        folded: indices of nodes whose results are known constants; they run nothing.

    Raises:
        GraphError: KG345 where a declared in-place output would destroy a value that is still needed.
    """
    classes = AliasClasses()
    for name, tensor in bound.tensors.items():
        if tensor.producer is None:
            classes.add(name)
    for name, tensor in bound.tensors.items():
        if tensor.spec is not None and tensor.spec.alias_of in classes.owner and classes.owner[name] == name:
            del classes.members[name]
            classes.join(name, tensor.spec.alias_of, f"alias of {tensor.spec.alias_of}")
    for node in bound.nodes:
        if node.index in folded:
            for result in node.written_names():
                classes.add(result)
                classes.known.add(result)
            continue
        viewed = _view_source(bound, node)
        for position, output in enumerate(node.outputs):
            if output is None:
                continue
            name = output
            if position == 0 and viewed is not None:
                classes.join(name, viewed, f"view of {viewed}")
                classes.forwarded.add(node.index)
            elif name in node.inplace:
                _join_declared(bound, node, name, classes)
            elif position == 0 and (granted := _granted(bound, node, name, classes, reuse)) is not None:
                classes.join(name, granted, f"in place of {granted}")
            else:
                classes.add(name)
    return classes


def _view_source(bound: BoundGraph, node: BoundNode) -> str | None:
    """The input that output 0 is a view of, or None when the node must run (S33, S41, S42)."""
    spec = node.spec
    if not isinstance(spec, OpNode) or spec.nop is False or not node.outputs or node.outputs[0] is None:
        return None
    if bound.tensors[node.outputs[0]].is_output and not spec.skip_nop_op_addr:
        return None
    alias = lookup(node.op).alias
    if alias is None and not spec.nop:
        return None
    source = node.inputs[alias or 0] if node.inputs else None
    if source is None:
        return None
    output = node.outputs[0]
    if bound.tensors[source].nbytes != bound.tensors[output].nbytes:
        raise GraphError(
            f"{node.name!r} forwards {source!r}, but {output!r} has another size",
            code="KG354",
            where=bound.source.place("nodes", node.position, "nop"),
        )
    return source


def _later_use(bound: BoundGraph, node: BoundNode, name: str, classes: AliasClasses) -> str | None:
    """Why the bytes of `name` are still needed once `node` has run, or None when they are not."""
    for member in classes.of(name):
        tensor = bound.tensors[member]
        if tensor.is_output:
            return f"{member} is a graph output"
        later = next((c for c in tensor.consumers if c > node.index), None)
        if later is not None:
            return f"{member} is read later by {bound.nodes[later].name}"
    return None


def _join_declared(bound: BoundGraph, node: BoundNode, output: str, classes: AliasClasses) -> None:
    source = node.inplace[output]
    problem = _later_use(bound, node, source, classes)
    kept = (m for m in classes.of(source) if bound.tensors[m].role in ("input", "constant") or m in classes.known)
    if problem is None and any(kept):
        problem = f"it lives in the bytes of {classes.owner[source]}, which keeps its value"
    if problem is not None:
        raise GraphError(
            f"{node.name!r} cannot overwrite {source!r} in place: {problem}",
            code="KG345",
            where=bound.source.place("nodes", node.position, "inplace", output),
            help="leave `inplace` out, or let that reader run before",
        )
    classes.join(output, source, f"in place of {source}, as declared")
    classes.decisions.append(Decision(node.name, output, source, True, "declared"))


def _granted(bound: BoundGraph, node: BoundNode, output: str, classes: AliasClasses, reuse: bool) -> str | None:
    """The input whose bytes `output` may take over, or None."""
    if node.call is None or not reuse or node.clear or node.spec.no_reuse or node.spec.collective is not None:
        return None
    schema = lookup(node.op)
    if schema.alias is not None:
        return None  # a view that must run owns its memory (S33)
    target = bound.tensors[output]
    for position in schema.inplace:
        source = node.inputs[position] if position < len(node.inputs) else None
        if source is None:
            continue
        refusal = _refusal(bound, node, source, target.type.dtype, target.type.shape, classes)
        classes.decisions.append(Decision(node.name, output, source, refusal is None, refusal or f"{source} dies here"))
        if refusal is None:
            return source
    return None


def _refusal(
    bound: BoundGraph, node: BoundNode, source: str, dtype: str, shape: tuple[int, ...], classes: AliasClasses
) -> str | None:
    kind = bound.tensors[source].type
    if kind.dtype != dtype or kind.shape != shape:
        return f"{source} is {kind.dtype}{list(kind.shape)}, not {dtype}{list(shape)}"
    for member in classes.of(source):
        tensor = bound.tensors[member]
        if tensor.role in _EXTERNAL or tensor.producer is None:
            return f"{source} lives in {tensor.role} {member}"
        if member in classes.known:
            return f"{member} is a known constant"
        if tensor.spec is not None and (tensor.spec.no_reuse or tensor.spec.lifelong or tensor.spec.pin):
            return f"{member} may not be overwritten (no_reuse, lifelong or pin)"
        if bound.nodes[tensor.producer].spec.no_reuse:
            return f"{member} may not be overwritten (no_reuse)"
        if member != source and member in node.inputs:
            return f"{member}, another operand, shares the bytes of {source}"
    return _later_use(bound, node, source, classes)
