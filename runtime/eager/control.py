"""If, Loop and Scan as ONNX defines them: conditions and trip counts are read back, bodies run from the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kgrun.graphs.control import CONTROL
from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators.base import InferenceError, TensorType, check_attributes
from kgrun.graphs.schema.kinds import is_op
from kgrun.runtime.eager.store import Tensor
from kgrun.runtime.eager.unmade import unmade_type
from kgrun.runtime.program import MemoryClass

if TYPE_CHECKING:
    from kgrun.graphs.schema.nodes import OpNode
    from kgrun.runtime.eager.body import Body
    from kgrun.runtime.eager.executor import Executor
    from kgrun.runtime.eager.frame import Frame

Results = list["Tensor | None"]


def run_control(executor: Executor, frame: Frame, position: int) -> Results:
    """Run a control node; its outputs, each held for the caller.

    Raises:
        GraphError: KG330 for bodies, inputs or outputs that do not fit together.
    """
    node = frame.body.graph.nodes[position]
    assert is_op(node)
    names = frame.body.links.inputs[position]
    inputs = [None if name is None else executor.tensor(frame, name) for name in names]
    least, most = CONTROL[node.op].inputs
    if not least <= len(inputs) <= most:
        raise _wrong(
            f"{node.op} takes {least} or more inputs, got {len(inputs)}"
            if most > least
            else f"{node.op} takes {least} input, got {len(inputs)}"
        )
    try:
        attributes = check_attributes(node.op, CONTROL[node.op].attributes, node.attributes)
    except InferenceError as error:
        raise error.at(frame.body.graph.place("nodes", position, *error.path)) from None
    run = _Run(executor, frame, position, node)
    if node.op == "If":
        results = run.branch(inputs)
    elif node.op == "Loop":
        results = run.loop(inputs)
    else:
        results = run.scan(inputs, attributes)
    if len(results) < len(node.outputs):
        for tensor in results:
            executor.store.release(tensor.block)
        raise _wrong(f"{node.op} {node.name!r} has {len(results)} results, the node names {len(node.outputs)}")
    for tensor in results[len(node.outputs) :]:
        executor.store.release(tensor.block)
    return list(results[: len(node.outputs)])


def _wrong(message: str) -> GraphError:
    return GraphError(message, code="KG330")


class _Run:
    """One run of a control node."""

    def __init__(self, executor: Executor, frame: Frame, position: int, node: OpNode) -> None:
        self.executor, self.frame, self.node = executor, frame, node
        self.bodies = frame.body.bodies[position]
        self.path = f"{frame.path}{node.name}."

    def branch(self, inputs: Sequence[Tensor | None]) -> list[Tensor]:
        """The branch that the condition picks."""
        role = "then_branch" if self._flag(inputs[0], "condition") else "else_branch"
        return self._body(self.bodies[role], [])

    def loop(self, inputs: Sequence[Tensor | None]) -> list[Tensor]:
        """As often as the trip count says and the condition lets it."""
        body, states = self.bodies["body"], self._given(inputs[2:])
        trips = None if inputs[0] is None else int(self._one(inputs[0], "trip count"))
        watched = inputs[1] is not None
        if trips is None and not watched:
            raise _wrong(f"Loop {self.node.name!r} has neither trip count nor condition: it would never end")
        going = self._flag(inputs[1], "condition") if watched else True
        self._check_body(body, 2 + len(states), 1 + len(states))
        stacks: list[list[Tensor]] = [[] for _ in body.outputs[1 + len(states) :]]
        for tensor in states:
            self.executor.store.retain(tensor.block)
        count = 0
        while going and (trips is None or count < trips):
            heads = [self._scalar("iteration", "int64", count), self._scalar("condition", "bool", True)]
            results = self._body(body, [*heads, *states])
            states, scanned = results[1 : 1 + len(states)], results[1 + len(states) :]
            for stack, tensor in zip(stacks, scanned, strict=True):
                stack.append(tensor)
            if watched:
                going = self._flag(results[0], "condition that the body returns")
            self.executor.store.release(results[0].block)
            count += 1
        names = body.outputs[1 + len(states) :]
        first = [TensorType("int64", (), (0,)), TensorType("bool", (), (True,)), *(tensor.type for tensor in states)]
        return [*states, *(self._stacked(body, n, stack, 0, first) for n, stack in zip(names, stacks, strict=True))]

    def scan(self, inputs: Sequence[Tensor | None], attributes: dict[str, object]) -> list[Tensor]:
        """Over slices of the last inputs, carrying states along."""
        body = self.bodies["body"]
        count = int(attributes["num_scan_inputs"])  # type: ignore[call-overload]  # checked to be an int
        if not 1 <= count <= len(inputs):
            raise _wrong(f"Scan {self.node.name!r}: num_scan_inputs is {count}, but it has {len(inputs)} inputs")
        states, sources = self._given(inputs[:-count]), self._given(inputs[-count:])
        made = len(body.outputs) - len(states)
        self._check_body(body, len(inputs), len(states))
        axes = self._numbers(attributes, "scan_input_axes", count)
        back = self._numbers(attributes, "scan_input_directions", count)
        out_axes = self._numbers(attributes, "scan_output_axes", made)
        out_back = self._numbers(attributes, "scan_output_directions", made)
        fronted = [self._fronted(tensor, axis) for tensor, axis in zip(sources, axes, strict=True)]
        lengths = {tensor.type.shape[0] for tensor in fronted}
        if len(lengths) != 1:
            raise _wrong(f"Scan {self.node.name!r}: its scan inputs have lengths {sorted(lengths)}")
        (length,) = lengths
        stacks: list[list[Tensor]] = [[] for _ in range(made)]
        for tensor in states:
            self.executor.store.retain(tensor.block)
        for i in range(length):
            parts = [
                self._slice(tensor, length - 1 - i if backwards else i)
                for tensor, backwards in zip(fronted, back, strict=True)
            ]
            results = self._body(body, [*states, *parts])
            states = results[: len(states)]
            for stack, tensor in zip(stacks, results[len(states) :], strict=True):
                stack.append(tensor)
        first = [tensor.type for tensor in states]
        first += [TensorType(tensor.type.dtype, tensor.type.shape[1:]) for tensor in fronted]
        for tensor in fronted:
            self.executor.store.release(tensor.block)
        names = body.outputs[len(states) :]
        ends = [
            self._stacked(body, name, stack[::-1] if backwards else stack, axis, first)
            for name, stack, axis, backwards in zip(names, stacks, out_axes, out_back, strict=True)
        ]
        return [*states, *ends]

    def _body(self, body: Body, arguments: list[Tensor]) -> list[Tensor]:
        """One run of a body, which takes over the caller's hold of the arguments."""
        named = dict(zip(body.formals, arguments, strict=True))
        return self.executor.run(body, named, self.path, self.frame, self.frame.top, owned=True)

    def _given(self, inputs: Sequence[Tensor | None]) -> list[Tensor]:
        found = [tensor for tensor in inputs if tensor is not None]
        if len(found) != len(inputs):
            raise _wrong(f"{self.node.op} {self.node.name!r}: an input that its body needs is absent")
        return found

    def _check_body(self, body: Body, inputs: int, outputs: int) -> None:
        if len(body.formals) != inputs:
            raise _wrong(
                f"the body of {self.node.op} {self.node.name!r} takes {inputs} inputs, {body.graph.name!r} has "
                f"{len(body.formals)}"
            )
        if len(body.outputs) < outputs:
            raise _wrong(
                f"the body of {self.node.op} {self.node.name!r} has {outputs} outputs or more, {body.graph.name!r} has "
                f"{len(body.outputs)}"
            )

    def _numbers(self, attributes: dict[str, object], name: str, count: int) -> list[int]:
        """An attribute with one number for each of `count`, zeros by default."""
        found = attributes.get(name)
        numbers = [0] * count if found is None else [int(n) for n in found]  # type: ignore[attr-defined]  # checked ints
        if len(numbers) != count:
            raise _wrong(f"Scan {self.node.name!r}: {name} has {len(numbers)} numbers, not {count}")
        return numbers

    def _one(self, tensor: Tensor, what: str) -> int | float | bool:
        if tensor.type.size != 1:
            raise _wrong(f"the {what} of {self.node.name!r} has {tensor.type.size} elements, not one")
        element: int | float | bool = self.executor.elements(tensor)[0]
        return element

    def _flag(self, tensor: Tensor | None, what: str) -> bool:
        if tensor is None or tensor.type.dtype != "bool":
            kind = "absent" if tensor is None else tensor.type.dtype
            raise _wrong(f"the {what} of {self.node.name!r} is {kind}, not bool")
        return bool(self._one(tensor, what))

    def _scalar(self, what: str, dtype: str, value: int) -> Tensor:
        # Its value stays out of the type: what follows from it would be bound anew in every iteration.
        array = np.array(value, numpy_dtype(dtype))
        block = self.executor.store.promised(self.path + what, array, MemoryClass.INTERMEDIATE)
        return Tensor(TensorType(dtype, ()), block, (value,))

    def _fronted(self, tensor: Tensor, axis: int) -> Tensor:
        """The tensor with `axis` first, held; axes other than the first are moved on the host."""
        rank = len(tensor.type.shape)
        if not -rank <= axis < rank:
            raise _wrong(f"Scan {self.node.name!r}: axis {axis} is outside [-{rank}, {rank - 1}]")
        if axis % rank == 0:
            self.executor.store.retain(tensor.block)
            return tensor
        moved = np.ascontiguousarray(np.moveaxis(self.executor.store.download(tensor), axis, 0))
        block = self.executor.store.promised(f"{self.path}{tensor.block.name}", moved, MemoryClass.INTERMEDIATE)
        return Tensor(TensorType(tensor.type.dtype, moved.shape), block)

    def _slice(self, tensor: Tensor, index: int) -> Tensor:
        """Element `index` along the first axis, in bytes of its own."""
        kind = TensorType(tensor.type.dtype, tensor.type.shape[1:])
        name = f"{self.path}{tensor.block.name}[]"
        block = self.executor.store.block(name, kind.nbytes, MemoryClass.INTERMEDIATE)
        self.executor.copy(block, 0, tensor.block, index * kind.nbytes, kind.nbytes)
        return Tensor(kind, block)

    def _stacked(self, body: Body, name: str, parts: list[Tensor], axis: int, first: Sequence[TensorType]) -> Tensor:
        """The results of all iterations along a new axis; lets go of them.

        Args:
            first: types of what the first iteration is, or would have been, given.
        """
        store = self.executor.store
        kind = parts[0].type if parts else self._unmade(body, name, first)
        for i, part in enumerate(parts):
            if (part.type.dtype, part.type.shape) != (kind.dtype, kind.shape):
                raise _wrong(
                    f"{name!r} of {body.graph.name!r} has shape {list(part.type.shape)} in iteration {i} and "
                    f"{list(kind.shape)} in the first: they cannot be stacked"
                )
        shape = (len(parts), *kind.shape)
        made = Tensor(
            TensorType(kind.dtype, shape),
            store.block(self.path + name, len(parts) * kind.nbytes, MemoryClass.INTERMEDIATE),
        )
        for i, part in enumerate(parts):
            if kind.nbytes:
                self.executor.copy(made.block, i * kind.nbytes, part.block, 0, kind.nbytes)
            store.release(part.block)
        rank = len(shape)
        if not -rank <= axis < rank:
            raise _wrong(f"Scan {self.node.name!r}: output axis {axis} is outside [-{rank}, {rank - 1}]")
        if axis % rank == 0:
            return made
        moved = np.ascontiguousarray(np.moveaxis(store.download(made), 0, axis))
        store.release(made.block)
        block = store.promised(self.path + name, moved, MemoryClass.INTERMEDIATE)
        return Tensor(TensorType(kind.dtype, moved.shape), block)

    def _unmade(self, body: Body, name: str, first: Sequence[TensorType]) -> TensorType:
        """The type of a body's output that no iteration made: as declared, or as its nodes would make it."""
        spec = body.graph.tensors.get(name)
        if spec is None or spec.dtype is None or spec.shape is None:
            kind = unmade_type(self.executor, self.frame, body, first, name)
            if kind is not None:
                return TensorType(kind.dtype, kind.shape)
            raise GraphError(
                f"{self.node.op} {self.node.name!r} made no iteration: nothing tells the type of {name!r}",
                code="KG351",
                where=body.graph.place("tensors", name),
                help=f"declare dtype and shape of {name!r} under `tensors` of {body.graph.name!r}",
            )
        shape = tuple(body.extent(e) for e in spec.shape)
        return TensorType(spec.dtype, shape)
