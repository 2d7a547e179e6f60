"""Random valid graphs of builtin operators, for property tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

Graph = dict[str, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a random graph.

    Attributes:
        root: the alias class: the first tensor of the chain of views and in-place results.
        bound: no element is greater in magnitude; keeps values finite, so that nothing overflows.
        owned: whether a node of the graph made the bytes; inputs and parameters are never overwritten.
    """

    name: str
    shape: Shape
    bound: float
    root: str
    owned: bool


@dataclass
class Draft:
    """A random graph while it grows. `live` are the tensors that nodes may read, `read` the names that some did."""

    rng: random.Random
    dtype: str
    tensors: Graph = field(default_factory=dict)
    nodes: list[Graph] = field(default_factory=list)
    live: list[Tensor] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def source(self, role: str, shape: Shape) -> Tensor:
        """A new input or parameter with values in [-1, 1)."""
        name = f"{role}{len(self.tensors)}"
        init = {"uniform": [-1, 1], "seed": len(self.tensors)}
        self.tensors[name] = {"role": role, "dtype": self.dtype, "shape": list(shape), "init": init}
        return Tensor(name, shape, 1.0, name, owned=False)

    def integers(self, values: Sequence[int]) -> str:
        """The name of a new int64 constant."""
        name = f"numbers{len(self.tensors)}"
        self.tensors[name] = {"role": "constant", "dtype": "int64", "value": list(values)}
        return name

    def pick(self, accept: Callable[[Tensor], bool] = lambda t: True) -> Tensor | None:
        """A live tensor that `accept` takes; recent ones are likelier, and those that nothing reads yet."""
        found = [t for t in self.live if accept(t)]
        weights = [place if t.name in self.read else 8 * place for place, t in enumerate(found, 1)]
        return self.rng.choices(found, weights)[0] if found else None

    def emit(
        self,
        op: str,
        inputs: Sequence[Tensor],
        shape: Shape,
        bound: float,
        *,
        extra: Sequence[str] = (),
        view: bool = False,
        inplace: bool = False,
        **attributes: Any,
    ) -> None:
        """Add one node with one output; `extra` are shape and axis constants after `inputs`."""
        if bound > 1e15 or prod(shape) > 4096:
            return
        number = len(self.nodes)
        name = f"t{number}"
        node: Graph = {"name": f"{op.lower()}{number}", "op": op, "inputs": [t.name for t in inputs] + list(extra)}
        node |= {"outputs": [name]} | ({"attributes": attributes} if attributes else {})
        result = Tensor(name, shape, bound, name, owned=True)
        if view:
            result = Tensor(name, shape, bound, inputs[0].root, inputs[0].owned)
        elif inplace and (victim := self._victim(inputs, shape)) is not None:
            node["inplace"] = {name: victim.name}
            result = Tensor(name, shape, bound, victim.root, owned=True)
            # Its old value is gone: no later node may read it under any of its names.
            self.live = [t for t in self.live if t.root != victim.root]
        if not view and self.rng.random() < 0.2:
            node["workspace"] = [self.rng.randint(1, 3000) for _ in range(self.rng.randint(1, 2))]
        if not view and self.rng.random() < 0.05:
            node["no_reuse"] = True
        self.nodes.append(node)
        self.read.update(t.name for t in inputs)
        self.live.append(result)

    def _victim(self, inputs: Sequence[Tensor], shape: Shape) -> Tensor | None:
        """The input whose memory the result takes over, in one case of two where that is allowed."""
        roots = [t.root for t in inputs]
        able = [t for t in inputs if t.owned and t.shape == shape and roots.count(t.root) == 1]
        return self.rng.choice(able) if able and self.rng.random() < 0.5 else None


def _unary(draft: Draft) -> None:
    x = draft.pick()
    assert x is not None
    op = draft.rng.choice(("Relu", "Neg", "Abs", "Identity", "Sigmoid"))
    if op == "Identity":
        draft.emit(op, [x], x.shape, x.bound, view=True)  # a runtime may forward it
    elif op != "Sigmoid" or x.bound <= 64:  # exp of more would overflow
        draft.emit(op, [x], x.shape, 1.0 if op == "Sigmoid" else x.bound, inplace=True)


def _broadcast(a: Shape, b: Shape) -> Shape | None:
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True))
    return tuple(max(p) for p in pairs) if all(p[0] == p[1] or 1 in p for p in pairs) else None


def _binary(draft: Draft) -> None:
    a = draft.pick()
    assert a is not None
    sizes = a.shape
    b = draft.pick(lambda t: _broadcast(sizes, t.shape) is not None) or a
    if draft.rng.random() < 0.5:
        a, b = b, a
    shape = _broadcast(a.shape, b.shape)
    assert shape is not None
    op = draft.rng.choice(("Add", "Sub", "Mul", "Max", "Min"))
    bound = {"Add": a.bound + b.bound, "Sub": a.bound + b.bound, "Mul": a.bound * b.bound}.get(
        op, max(a.bound, b.bound)
    )
    draft.emit(op, [a, b], shape, bound, inplace=True)


def _view(draft: Draft) -> None:
    x = draft.pick()
    assert x is not None
    rank = len(x.shape)
    op = draft.rng.choice(("Reshape", "Reshape", "Flatten", "Unsqueeze"))
    if op == "Flatten":
        axis = draft.rng.randint(0, rank)
        draft.emit(op, [x], (prod(x.shape[:axis]), prod(x.shape[axis:])), x.bound, view=True, axis=axis)
    elif op == "Unsqueeze":
        if rank < 4:
            axis = draft.rng.randint(0, rank)
            given = axis if draft.rng.random() < 0.5 else axis - rank - 1
            shape = (*x.shape[:axis], 1, *x.shape[axis:])
            draft.emit(op, [x], shape, x.bound, view=True, extra=[draft.integers([given])])
    else:
        shape = _factors(draft.rng, prod(x.shape))
        asked = list(shape)
        if asked and draft.rng.random() < 0.5:
            asked[draft.rng.randrange(len(asked))] = -1
        draft.emit(op, [x], shape, x.bound, view=True, extra=[draft.integers(asked)])


def _factors(rng: random.Random, size: int) -> Shape:
    """A random shape of `size` elements, of rank 1 to 4."""
    shape = []
    for _ in range(rng.randint(0, 3)):
        divisor = rng.choice([d for d in range(1, size + 1) if size % d == 0])
        shape.append(divisor)
        size //= divisor
    shape.append(size)
    rng.shuffle(shape)
    return tuple(shape)


def _transpose(draft: Draft) -> None:
    if x := draft.pick(lambda t: len(t.shape) >= 2):
        order = draft.rng.sample(range(len(x.shape)), len(x.shape))
        draft.emit("Transpose", [x], tuple(x.shape[i] for i in order), x.bound, perm=order)


def _concat(draft: Draft) -> None:
    if x := draft.pick(lambda t: len(t.shape) >= 1):
        axis = draft.rng.randrange(len(x.shape))

        def fits(t: Tensor) -> bool:
            return len(t.shape) == len(x.shape) and all(
                i == axis or a == b for i, (a, b) in enumerate(zip(t.shape, x.shape, strict=True))
            )

        parts = [x] + [draft.pick(fits) or x for _ in range(draft.rng.randint(1, 2))]
        shape = (*x.shape[:axis], sum(t.shape[axis] for t in parts), *x.shape[axis + 1 :])
        given = axis if draft.rng.random() < 0.5 else axis - len(shape)
        draft.emit("Concat", parts, shape, max(t.bound for t in parts), axis=given)


def _slice(draft: Draft) -> None:
    if x := draft.pick(lambda t: len(t.shape) >= 1):
        axis = draft.rng.randrange(len(x.shape))
        length, step = x.shape[axis], draft.rng.choice((1, 1, 2, 3, -1, -2))
        first, last = sorted(draft.rng.choices(range(length), k=2))
        start, end = (first, last + 1) if step > 0 else (last, first - 1)
        count = (last - first) // abs(step) + 1
        if end == -1:
            end = -length - 1  # one before the first element; -1 would mean the last
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        extra = [draft.integers([v]) for v in (start, end, axis, step)]
        draft.emit("Slice", [x], shape, x.bound, extra=extra)


def _matmul(draft: Draft) -> None:
    if x := draft.pick(lambda t: len(t.shape) >= 2):
        inner = x.shape[-1]
        y = draft.pick(lambda t: len(t.shape) == 2 and t.shape[0] == inner)
        if y is None or draft.rng.random() < 0.5:
            y = draft.source("parameter", (inner, draft.rng.randint(1, 9)))
        draft.emit("MatMul", [x, y], (*x.shape[:-1], y.shape[1]), inner * x.bound * y.bound)


def _softmax(draft: Draft) -> None:
    if x := draft.pick(lambda t: len(t.shape) >= 1):
        draft.emit("Softmax", [x], x.shape, 1.0, axis=draft.rng.randrange(-len(x.shape), len(x.shape)))


def _reduce(draft: Draft) -> None:
    if x := draft.pick(lambda t: len(t.shape) >= 1):
        axes = sorted(draft.rng.sample(range(len(x.shape)), draft.rng.randint(1, len(x.shape))))
        keep = draft.rng.randint(0, 1)
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes)
        bound = x.bound * prod(x.shape[i] for i in axes)
        draft.emit("ReduceSum", [x], shape, bound, extra=[draft.integers(axes)], keepdims=keep)


_MAKERS = (
    _unary,
    _unary,
    _binary,
    _binary,
    _binary,
    _view,
    _view,
    _transpose,
    _concat,
    _slice,
    _matmul,
    _softmax,
    _reduce,
)


def random_graph(rng: random.Random, nodes: int = 30) -> Graph:
    """A valid graph of at most `nodes` builtin operators, drawn from `rng` alone, with values that stay finite.

    It has fan-out, views of views, in-place results, workspaces, one to four outputs, dead nodes and, now and then, a
    parameter that nothing reads. Tensors have at most 4,096 elements of float32, seldom float64.
    """
    draft = Draft(rng, rng.choice(("float32", "float32", "float32", "float64")))
    shapes = [tuple(rng.randint(1, 8) for _ in range(rng.randint(0, 4))) for _ in range(rng.randint(1, 4))]
    draft.live = [draft.source(rng.choice(("input", "input", "parameter")), shape) for shape in shapes]
    if rng.random() < 0.3:
        draft.source("parameter", (rng.randint(1, 600),))
    _unary(draft)  # the one maker that never refuses values this small
    for _ in range(nodes - 1):
        rng.choice(_MAKERS)(draft)
    made = {output for node in draft.nodes for output in node["outputs"]}
    able = [t.name for t in draft.live if t.name in made]
    ends = [name for name in able if name not in draft.read]
    outputs = {ends[-1], *rng.sample(ends, min(len(ends), rng.randint(0, 2))), *rng.sample(able, rng.randint(0, 1))}
    return {
        "kgrun": 1,
        "name": "random",
        "tensors": draft.tensors,
        "nodes": draft.nodes,
        "outputs": [name for name in able if name in outputs],
    }
