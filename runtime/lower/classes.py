"""Alias classes: which tensors share their bytes, and why.

Views (Reshape and its like), declared in-place outputs (S39), inputs declared as aliases (S24), and in-place outputs
that kgrun grants on its own where an input dies at an operator that may overwrite it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kgrun.graphs.bound import BoundGraph, BoundNode
from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators import alias_of, lookup
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.schema.kinds import is_op
from kgrun.runtime.program import Decision


@dataclass(slots=True)
class _Use:
    """What the members of a class, taken together, say about overwriting its bytes.

    Attributes:
        last: the member that is read last, with the index of that reader (-1: never read).
        output: a member that is a graph output.
        kept: why the bytes must never be overwritten on kgrun's own account; None where nothing speaks against it.
    """

    last: tuple[int, str]
    output: str | None = None
    kept: str | None = None

    def add(self, other: _Use) -> None:
        self.last = max(self.last, other.last, key=lambda use: use[0])
        self.output = self.output or other.output
        self.kept = self.kept or other.kept


@dataclass(slots=True)
class AliasClasses:
    """A partition of the tensors.

    Attributes:
        owner: tensor -> the tensor that owns the bytes it lives in.
        members: owner -> its tensors, in the order they joined.
        reasons: tensor -> why it lives in another's bytes.
        decisions: what became of each in-place request.
        forwarded: indices of nodes that need no kernel: their output is a view, or nothing reads it.
        known: results of nodes that run nothing; loaded once, so never overwritten.
    """

    owner: dict[str, str] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    forwarded: set[int] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    uses: dict[str, _Use] = field(default_factory=dict)

    def add(self, name: str, use: _Use) -> None:
        """A tensor with bytes of its own."""
        self.owner[name] = name
        self.members[name] = [name]
        self.uses[name] = use

    def join(self, name: str, other: str, reason: str, use: _Use) -> None:
        """Let `name` live in the bytes of `other`."""
        owner = self.owner[other]
        self.owner[name] = owner
        self.members[owner].append(name)
        self.reasons[name] = reason
        self.uses[owner].add(use)

    def use(self, name: str) -> _Use:
        """What is known of the whole class of `name`."""
        return self.uses[self.owner[name]]


def alias_classes(
    bound: BoundGraph,
    *,
    reuse: bool = True,
    views: bool = True,
    folded: frozenset[int] = frozenset(),
    unmade: frozenset[str] = frozenset(),
) -> AliasClasses:
    """The alias classes of `bound`, in execution order.

    Args:
        reuse: grant in-place outputs that the file does not ask for; off in `none` mode.
        views: see `lower`.
        folded: indices of nodes whose results are known constants; they run nothing.
        unmade: tensors that nothing reads any more; their nodes run nothing.

    Raises:
        GraphError: KG345 where a declared in-place output would destroy a value that is still needed.
    """
    classes = AliasClasses()
    for name, tensor in bound.tensors.items():
        if tensor.producer is None:
            classes.add(name, _use(bound, name))
    for name, tensor in bound.tensors.items():
        if tensor.spec is not None and tensor.spec.alias_of in classes.owner and classes.owner[name] == name:
            del classes.members[name]
            classes.join(name, tensor.spec.alias_of, f"alias of {tensor.spec.alias_of}", classes.uses.pop(name))
    apart = set_apart(bound) if views else frozenset(bound.tensors)
    for node in bound.nodes:
        if node.index in folded:
            for result in node.written_names():
                classes.add(result, _use(bound, result, known=True))
                classes.known.add(result)
        elif not unmade.isdisjoint(node.written_names()):
            for result in node.written_names():
                classes.add(result, _use(bound, result))
            classes.forwarded.add(node.index)
        else:
            _place_outputs(bound, node, classes, reuse, apart)
    return classes


def set_apart(bound: BoundGraph) -> frozenset[str]:
    """Tensors that the file overwrites or places, and all that would share their bytes if all possible views did."""
    found = {source for node in bound.nodes for source in node.inplace.values()}
    found.update(name for group in bound.source.contiguous for name in group)
    for node in bound.nodes:
        if node.collective is not None and node.collective.contiguous:
            found.update(name for name in (*node.inputs, *node.outputs) if name is not None)
    pairs = [pair for node in bound.nodes for pair in _sharing(node)] if found else []
    pairs += [(name, t.spec.alias_of) for name, t in bound.tensors.items() if t.spec is not None and t.spec.alias_of]
    before = 0
    while len(found) > before:
        before = len(found)
        for pair in pairs:
            if not found.isdisjoint(pair):
                found.update(pair)
    return frozenset(found)


def _sharing(node: BoundNode) -> Iterator[tuple[str, str]]:
    yield from node.inplace.items()
    alias = alias_of(node.call)
    source = node.inputs[alias] if alias is not None and node.inputs else None
    if source is not None and node.outputs and node.outputs[0] is not None:
        yield source, node.outputs[0]


def _place_outputs(
    bound: BoundGraph, node: BoundNode, classes: AliasClasses, reuse: bool, apart: frozenset[str]
) -> None:
    viewed = view_source(bound, node, apart)
    for position, name in enumerate(node.outputs):
        if name is None:
            continue
        use = _use(bound, name)
        if position == 0 and viewed is not None:
            classes.join(name, viewed, f"view of {viewed}", use)
            if not any(node.outputs[1:]):
                classes.forwarded.add(node.index)
        elif name in node.inplace:
            _check_declared(bound, node, name, classes)
            classes.join(name, node.inplace[name], f"in place of {node.inplace[name]}, as declared", use)
            classes.decisions.append(Decision(node.name, name, node.inplace[name], True, "declared"))
        elif position == 0 and (granted := _granted(bound, node, name, classes, reuse)) is not None:
            classes.join(name, granted, f"in place of {granted}", use)
        else:
            classes.add(name, use)


def _use(bound: BoundGraph, name: str, *, known: bool = False) -> _Use:
    tensor = bound.tensors[name]
    use = _Use((tensor.consumers[-1] if tensor.consumers else -1, name), name if tensor.is_output else None)
    if known:
        use.kept = f"{name} is a known constant"
    elif tensor.producer is None:
        use.kept = f"it lives in {tensor.role} {name}"
    elif tensor.spec is not None and (tensor.spec.no_reuse or tensor.spec.lifelong or tensor.spec.pin):
        use.kept = f"{name} may not be overwritten (no_reuse, lifelong or pin)"
    elif bound.nodes[tensor.producer].spec.no_reuse:
        use.kept = f"{name} may not be overwritten (no_reuse)"
    return use


def view_source(bound: BoundGraph, node: BoundNode, apart: frozenset[str]) -> str | None:
    """The input that output 0 is a view of, or None when the node must run (S33, S41, S42).

    An operator that only happens to leave the bytes as they are runs where the file overwrites, clears or places them,
    or wants no reuse: what a file may ask for must not depend on its sizes.
    """
    spec = node.spec
    if not is_op(spec) or spec.nop is False or not node.outputs or node.outputs[0] is None:
        return None
    if bound.tensors[node.outputs[0]].is_output and not spec.skip_nop_op_addr:
        return None
    alias = alias_of(node.call)
    if alias is None and not spec.nop:
        return None
    source = node.inputs[alias or 0] if node.inputs else None
    if source is None or (is_optional_view(node) and (source in apart or spec.no_reuse or node.clear)):
        return None
    output = node.outputs[0]
    if alias is None and len(node.written_names()) > 1:
        raise GraphError(
            f"{node.name!r} forwards {source!r} as {output!r} and runs nothing: nothing makes its other outputs",
            code="KG354",
            where=bound.source.place("nodes", node.position, "nop"),
        )
    if bound.tensors[source].nbytes != bound.tensors[output].nbytes:
        raise GraphError(
            f"{node.name!r} forwards {source!r}, but {output!r} has another size",
            code="KG354",
            where=bound.source.place("nodes", node.position, "nop"),
        )
    return source


def is_optional_view(node: BoundNode) -> bool:
    """Whether it is a call's shapes that make a view of it, not its operator or the file: a copy would do as well."""
    if node.call is None or getattr(node.spec, "nop", False):
        return False
    return lookup(node.op).alias is None and alias_of(node.call) is not None


def _later_use(bound: BoundGraph, node: BoundNode, name: str, classes: AliasClasses) -> str | None:
    """Why the bytes of `name` are still needed once `node` has run, or None when they are not."""
    use = classes.use(name)
    if use.output is not None:
        return f"{use.output} is a graph output"
    last, member = use.last
    return f"{member} is read later by {bound.nodes[last].name}" if last > node.index else None


def _check_declared(bound: BoundGraph, node: BoundNode, output: str, classes: AliasClasses) -> None:
    source = node.inplace[output]
    problem = _later_use(bound, node, source, classes)
    owner = bound.tensors[classes.owner[source]]
    if problem is None and (owner.role in ("input", "constant") or owner.name in classes.known):
        problem = f"it lives in the bytes of {owner.name}, which keeps its value"
    if problem is None and node.call is not None:
        problem = _shared_operand(node.inputs, source, classes)
    if problem is not None:
        raise GraphError(
            f"{node.name!r} cannot overwrite {source!r} in place: {problem}",
            code="KG345",
            where=bound.source.place("nodes", node.position, "inplace", output),
            help="leave `inplace` out, or let that reader run before",
        )


def _granted(bound: BoundGraph, node: BoundNode, output: str, classes: AliasClasses, reuse: bool) -> str | None:
    """The input whose bytes `output` may take over, or None."""
    if node.call is None or not reuse or node.clear or node.spec.no_reuse or node.collective is not None:
        return None
    if alias_of(node.call) is not None:
        return None  # a view that must run owns its memory (S33)
    target, asked = bound.tensors[output], dict[str, Decision]()
    for position, beside in _asked(node, node.call):
        source = node.inputs[position] if position < len(node.inputs) else None
        if source is None:
            continue
        refusal = _refusal(bound, node, source, target.type.dtype, target.type.shape, classes)
        refusal = refusal or _shared_operand(beside, source, classes) or _later_use(bound, node, source, classes)
        refusal = refusal or _beside(bound, output, source, classes)
        asked[source] = Decision(node.name, output, source, refusal is None, refusal or f"{source} dies here")
        if refusal is None:
            break
    classes.decisions += asked.values()
    return next((source for source, decision in asked.items() if decision.granted), None)


def _asked(node: BoundNode, call: OpCall) -> Iterator[tuple[int, Sequence[str | None]]]:
    """Positions of the inputs that output 0 may take over, with the operands that may not share that input's bytes.

    A fused kernel reads the same element of all operands of one type before it writes it, so each may be taken over.
    Which one is decides what lives how long: first come those that its calls apart would take, as they would.
    """
    fused = call.fused
    if fused is None:
        yield from ((position, node.inputs) for position in lookup(node.op).inplace)
        return

    def taken(at: int) -> Iterator[tuple[int, int]]:
        """What call `at` takes over, or what a call before it has taken for it, and the call that does."""
        own, later = fused.operands[at], fused.operands[at + 1 :]
        for operand in dict.fromkeys(own[i] for i in lookup(fused.calls[at].op).inplace if i < len(own)):
            if operand is None or any(operand in operands for operands in later):
                continue
            yield from ((operand, at),) if operand < len(call.inputs) else taken(operand - len(call.inputs))

    def beside(at: int) -> list[str | None]:
        """Operands of the calls from `at` on, and those that are read at other places than the result is written."""
        read = {operand for operands in fused.operands[at:] for operand in operands}
        like = (call.outputs[0].dtype, call.outputs[0].shape)
        kinds = [(kind.dtype, kind.shape) if kind else None for kind in call.inputs]
        return [name for i, name in enumerate(node.inputs) if i in read or kinds[i] != like]

    yield from ((position, beside(at)) for position, at in taken(len(fused.calls) - 1))
    yield from ((position, beside(len(fused.calls))) for position in range(len(node.inputs)))


def _beside(bound: BoundGraph, output: str, source: str, classes: AliasClasses) -> str | None:
    """What says that `output` is to stand beside a tensor that lives in the bytes of `source`, or None."""
    members = classes.members[classes.owner[source]]
    placed = _declared_from(bound, output) if bound.source.contiguous else set()
    for group in bound.source.contiguous:
        other = next((name for name in members if name in group), None) if not placed.isdisjoint(group) else None
        if other is not None:
            return f"{other} stands beside it in a contiguous group"
    return None


def _declared_from(bound: BoundGraph, name: str) -> set[str]:
    """A tensor and what will live in its bytes as the file says, or as a view."""
    found, open_ends = {name}, [name]
    while open_ends:
        source = open_ends.pop()
        for node in (bound.nodes[reader] for reader in bound.tensors[source].consumers):
            sharing = {other for pair in _sharing(node) if source in pair for other in pair} & {*node.outputs}
            open_ends += sharing - found
            found |= sharing
    return found


def _refusal(
    bound: BoundGraph, node: BoundNode, source: str, dtype: str, shape: tuple[int, ...], classes: AliasClasses
) -> str | None:
    kind = bound.tensors[source].type
    if kind.dtype != dtype or kind.shape != shape:
        return f"{source} is {kind.dtype}{list(kind.shape)}, not {dtype}{list(shape)}"
    kept = classes.use(source).kept
    if kept is not None:
        return kept
    for reader in bound.tensors[source].consumers:
        if reader != node.index and bound.nodes[reader].stream != node.stream:
            return f"{bound.nodes[reader].name} reads it on another stream: overwriting it would wait for that"
    if node.inputs.count(source) > 1 and lookup(node.op).family != "elementwise":
        return f"{source} is an operand twice"
    return None


def _shared_operand(operands: Sequence[str | None], source: str, classes: AliasClasses) -> str | None:
    """What says that another of `operands` lies in the same bytes as `source`, or None."""
    owner = classes.owner[source]
    for other in operands:
        if other is not None and other != source and classes.owner[other] == owner:
            return f"{other}, another operand, shares the bytes of {source}"
    return None
