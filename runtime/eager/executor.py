"""The eager execute loop: bind a node to what its inputs turned out to be, give it memory, launch it, let go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.bind.tensors import MAX_KNOWN_ELEMENTS, host_value
from kgrun.graphs.bound import BoundGraph, BoundTensor
from kgrun.graphs.control import is_control
from kgrun.graphs.errors import DeviceFault, GraphError, KgrunError
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.checks.places import in_users_files
from kgrun.runtime.culprit import blame
from kgrun.runtime.eager import control
from kgrun.runtime.eager.body import Body, NodeProgram
from kgrun.runtime.eager.dynamic import run_dynamic
from kgrun.runtime.eager.frame import Frame
from kgrun.runtime.eager.record import Recorder
from kgrun.runtime.eager.store import Block, Store, Tensor
from kgrun.runtime.host_data import host_array, known_array
from kgrun.runtime.program import Buffer, Copy, MemoryClass, Pointer, Step

if TYPE_CHECKING:
    from kgrun.graphs.schema.tensors import Role
    from kgrun.runtime.checks import Watch
    from kgrun.runtime.devices.base import Device, PreparedStep

Array = np.ndarray[Any, Any]


class Executor:
    """Runs bodies on one device, on one stream.

    Args:
        given: input arrays by name.
        seed: of inits.
        sync_each: wait after each step (S139).

    Attributes:
        recorder: what ran, for the report.
        pinned: the static copies of pinned results (S38).
        observe: called with each tensor of the whole graph when it is made, or read first where it comes from outside.
        kept: blocks of outputs of the run before, for the same outputs to be written into again (S132).
        updates: whether a run overwrote a parameter.
        bind_ns: spent so far on binding, lowering and preparing nodes.
        wrote: called with a parameter's block before a step overwrites it.
    """

    def __init__(
        self, device: Device, store: Store, watch: Watch, given: Mapping[str, Array], seed: int, sync_each: bool
    ) -> None:
        self.device, self.store, self.watch = device, store, watch
        self.given, self.seed, self.sync_each = given, seed, sync_each
        self.recorder = Recorder(device)
        self.pinned: dict[str, Tensor] = {}
        self.wrote: Callable[[Block], None] | None = None
        self.observe: Callable[[str, Tensor], None] | None = None
        self.kept: dict[str, Block] = {}
        self.updates = False
        self.bind_ns = 0

    def run(
        self,
        body: Body,
        arguments: Mapping[str, Tensor],
        path: str = "",
        outer: Frame | None = None,
        top: int = 0,
        *,
        owned: bool = False,
    ) -> list[Tensor]:
        """Run a body once; its outputs, each held for the caller. With `owned`, it takes over the hold of arguments.

        Raises:
            KgrunError: of any node, with its place.
        """
        frame = Frame(body, path, outer, top)
        try:
            for name, tensor in arguments.items():
                frame.tensors[name] = tensor if owned else Tensor(tensor.type, self.store.retain(tensor.block))
            for name in arguments:
                if not frame.left.get(name, 0):
                    self.store.release(frame.tensors.pop(name).block)
            for position in body.links.order:
                if outer is None:
                    frame.top = position
                self._run_node(frame, position)
            outputs = []
            for name in body.outputs:
                tensor = self.tensor(frame, name)
                self.store.retain(tensor.block)
                outputs.append(tensor)
            return outputs
        finally:
            for tensor in frame.tensors.values():
                self.store.release(tensor.block)

    def tensor(self, frame: Frame, name: str) -> Tensor:
        """The tensor called `name`, made from the graph's data where nothing made it yet."""
        found = frame.find(name)
        if found is not None:
            return found
        level: Frame | None = frame
        while level is not None and name not in level.body.graph.tensors:
            level = level.outer
        assert level is not None, f"{name} was checked to be defined"
        return self._static(level.body, name)

    def _static(self, body: Body, name: str) -> Tensor:
        """A parameter, constant or input: its bytes stay for the session and are shared by aliases (S24)."""
        spec = body.graph.tensors[name]
        kind, role = body.external(name)
        if spec.alias_of is not None and spec.alias_of in body.graph.tensors:
            other = body.statics.get(spec.alias_of) or self._static(body, spec.alias_of)
            if kind.nbytes > other.type.nbytes:
                where = body.graph.place("tensors", name, "alias_of")
                raise GraphError(f"{name!r} is larger than {spec.alias_of!r}", code="KG354", where=where)
            tensor = Tensor(kind, self.store.retain(other.block))
        else:
            tensor = Tensor(kind, self.store.promised(name, self.host_data(body, name), MemoryClass(role)))
        tensor.block.fixed += 1
        body.statics[name] = tensor
        return tensor

    def host_data(self, body: Body, name: str) -> Array:
        """The elements that a parameter, constant or input starts with."""
        kind, role = body.external(name)
        bound = BoundGraph(body.graph, body.dims, {}, (), ())
        given = self.given if body.whole else {}
        return host_array(bound, BoundTensor(name, role, kind, spec=body.graph.tensors[name]), given, self.seed)

    def copy(self, target: Block, offset: int, source: Block, start: int, nbytes: int) -> None:
        """Copy bytes between blocks, in order with steps."""
        if nbytes == 0:
            return
        places = self.store.address(target), self.store.address(source)
        work = Copy(Pointer(0, offset), Pointer(1, start), nbytes)
        step = Step(0, f"{target.name}.copy", 0, "Copy", "compute", work, (1,), (0,))
        self.device.prepare(step, lambda p: places[p.buffer] + p.offset).launch()

    def _run_node(self, frame: Frame, position: int) -> None:
        body = frame.body
        node = body.graph.nodes[position]
        try:
            if is_control(node):
                outputs = control.run_control(self, frame, position)
            else:
                outputs = self._run_alone(frame, position)
        except KgrunError as error:
            raise error.at(body.graph.place("nodes", position)) from None
        for name, tensor in zip(node.outputs, outputs, strict=True):
            if tensor is None:
                continue
            if frame.outer is None and name is not None:
                self.recorder.types[name] = tensor.type
                if self.observe is not None:
                    self.observe(name, tensor)
            if name is not None and frame.left.get(name, 0):
                frame.tensors[name] = tensor
            else:
                self.store.release(tensor.block)
        for name in body.reads[position]:
            frame.left[name] -= 1
            if frame.left[name] == 0 and name in frame.tensors:
                self.store.release(frame.tensors.pop(name).block)

    def _run_alone(self, frame: Frame, position: int) -> list[Tensor | None]:
        body = frame.body
        names = body.links.inputs[position]
        host = body.host_inputs(position)
        inputs: list[Tensor | None] = []
        types: list[TensorType | None] = []
        roles: dict[str, Role] = {}
        for i, name in enumerate(names):
            spec = body.graph.tensors.get(name) if name is not None else None
            if name is None or (spec is not None and not spec.valid):
                inputs.append(None)
                types.append(None)
                continue
            tensor = self.tensor(frame, name)
            inputs.append(tensor)
            types.append(self._known(body, name, tensor) if i in host else tensor.type)
            if name in body.statics:
                roles[name] = body.role(name)
                if self.observe is not None and frame.outer is None:
                    self.observe(name, tensor)
        program = body.known_program(position, tuple(types))
        if program is None:
            started = perf_counter_ns()
            program = body.bind_program(position, tuple(types), roles)
            self.bind_ns += perf_counter_ns() - started
        if program.dynamic is not None:
            return run_dynamic(self, frame, program, inputs)
        return self._launch(frame, program, inputs)

    def _known(self, body: Body, name: str, tensor: Tensor) -> TensorType:
        """The type with its elements, read from their file or back from the device where they are not known (S82)."""
        kind = tensor.type
        if kind.value is not None or kind.size > MAX_KNOWN_ELEMENTS:
            return kind
        if name in body.statics and not (body.whole and name in self.given):
            kind = host_value(body.graph, name, kind, body.dims)
        if kind.value is not None:
            return kind
        return TensorType(kind.dtype, kind.shape, self.elements(tensor))

    def elements(self, tensor: Tensor) -> tuple[Any, ...]:
        """The tensor's elements, read back once."""
        if tensor.type.value is not None:
            return tensor.type.value
        if tensor.host is None:
            tensor.host = tuple(self.store.download(tensor).ravel().tolist())
        return tensor.host

    def _launch(self, frame: Frame, program: NodeProgram, inputs: list[Tensor | None]) -> list[Tensor | None]:
        store = self.store
        blocks: list[Block] = []
        try:
            for buffer, source in zip(program.program.buffers, program.sources, strict=True):
                given = inputs[source] if source is not None else None
                blocks.append(store.retain(given.block) if given is not None else self._fresh(frame, program, buffer))
            if program.program.steps:
                self._issue(frame, program, blocks)
            outputs: list[Tensor | None] = []
            for kind, place in zip(program.types, program.places, strict=True):
                if kind is None or place is None:
                    outputs.append(None)
                else:
                    outputs.append(Tensor(kind, store.retain(blocks[place])))
            if program.pins:
                self._keep_pinned(program, blocks)
            return outputs
        finally:
            for block in blocks:
                store.release(block)

    def _fresh(self, frame: Frame, program: NodeProgram, buffer: Buffer) -> Block:
        """A block that no input lies in: known elements, the output's own of the run before, or new memory."""
        if buffer.memory_class is MemoryClass.CONSTANT:
            return self.store.promised(buffer.name, _folded(program, buffer.name), MemoryClass.CONSTANT)
        kept = self.kept.pop(buffer.name, None) if frame.outer is None else None
        if kept is not None:
            if kept.nbytes == buffer.nbytes:
                return kept
            self.store.release(kept)
        return self.store.block(frame.path + buffer.name, buffer.nbytes, buffer.memory_class)

    def _issue(self, frame: Frame, program: NodeProgram, blocks: list[Block]) -> None:
        """Launch the node's steps over `blocks`; an error names the step that it is certain of."""
        steps, store = program.program.steps, self.store
        for index in program.overwrites:
            self._before_overwriting(frame, program, blocks, index)
        places = tuple(
            store.address(block) if touched else block.address or 0
            for block, touched in zip(blocks, program.touched, strict=True)
        )
        prepared = program.prepared.get(places)
        if prepared is None:
            started = perf_counter_ns()
            prepared = self._prepare(program, places)
            program.keep(places, prepared)
            self.bind_ns += perf_counter_ns() - started
        try:
            for step, ready in zip(steps, prepared, strict=True):
                start = self.device.record()
                ready.launch()
                self.recorder.launched(frame, program, step, blocks, ready.method, start, self.device.record())
                if self.sync_each or frame.body.graph.nodes[program.node.position].dynamic:
                    self._wait(step.name)
        except KgrunError as error:
            blame(error, program.program)
            raise

    def _before_overwriting(self, frame: Frame, program: NodeProgram, blocks: list[Block], index: int) -> None:
        """Let a step write into bytes of an input: into a copy where somebody else still wants the old value."""
        block, store = blocks[index], self.store
        position = program.node.position
        dying = sum(
            1
            for name in frame.body.reads[position]
            if frame.left[name] == 1 and name in frame.tensors and frame.tensors[name].block is block
        )
        updated = block.memory_class is MemoryClass.PARAMETER
        others = block.refs - dying - sum(1 for each in blocks if each is block) - (block.fixed if updated else 0)
        if updated and others > 0:
            raise GraphError(f"{program.node.name!r} cannot overwrite {block.name!r}: it is still read", code="KG345")
        self.updates |= updated and not frame.body.graph.nodes[position].update_async
        if updated and self.wrote is not None:
            self.wrote(block)
        if others <= 0:
            return
        fresh = store.block(block.name, block.nbytes, MemoryClass.INTERMEDIATE)
        self.copy(fresh, 0, block, 0, block.nbytes)
        blocks[index] = fresh
        store.release(block)

    def _wait(self, name: str) -> None:
        try:
            self.device.synchronize()
        except DeviceFault as error:
            error.details["suspects"] = [name]
            raise

    def _prepare(self, program: NodeProgram, places: tuple[int, ...]) -> list[PreparedStep]:
        self.watch.attach(self.device, program.program)

        def address(pointer: Pointer) -> int:
            return places[pointer.buffer] + pointer.offset

        try:
            self.device.prepare_all(program.program.steps)
            return [self.device.prepare(step, address) for step in program.program.steps]
        except KgrunError as error:
            raise in_users_files(program.program.graph.source, error) from None

    def _keep_pinned(self, program: NodeProgram, blocks: list[Block]) -> None:
        for name, place in program.pins:
            before = self.pinned.pop(name, None)
            if before is not None:
                self.store.release(before.block)
            kind = program.program.graph.tensors[name].type
            self.pinned[name] = Tensor(kind, self.store.retain(blocks[place]))

    def close(self) -> None:
        """Let go of pinned copies."""
        for tensor in self.pinned.values():
            self.store.release(tensor.block)
        self.pinned.clear()


def _folded(program: NodeProgram, name: str) -> Array:
    """The known elements of an output of a node that runs nothing."""
    kind = program.program.graph.tensors[name].type
    assert kind.value is not None, f"{name} is not known"
    return known_array(kind)
