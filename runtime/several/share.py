"""What a graph shares with those before it: outputs that it reads in place, parameters from the same file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kgrun.graphs.bound import BoundTensor, Warning
from kgrun.graphs.data_paths import inside
from kgrun.graphs.errors import GraphError, UsageError, did_you_mean
from kgrun.runtime.program import Buffer, MemoryClass, Program

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.graphs.schema.tensors import TensorSpec
    from kgrun.runtime.loaded import LoadedProgram

# Where a tensor lies: a graph's name, and the tensor's name there.
Source = tuple[str, str]


class Neighbour(Protocol):
    """A graph before this one: its program, and, later, that on the device."""

    planned: Program
    loaded: LoadedProgram


class Share:
    """One graph's part in a session of several.

    Args:
        name: the graph's.
        before: the graphs before it, by name.
        own: inputs and parameters that were given arrays of their own; they share nothing.

    Attributes:
        arena: address of the dynamic memory that all graphs use in turn (S50), once it is there.
        sources: by buffer of the adopted program: whose bytes it uses.
    """

    def __init__(self, name: str, before: Mapping[str, Neighbour], own: frozenset[str] = frozenset()) -> None:
        self.name, self.before, self.own = name, dict(before), own
        self.arena: int | None = None
        self.sources: dict[int, Source] = {}
        self._elsewhere: dict[str, Source] = {}
        self._from: dict[str, Source] = {}

    def resolved(self, graph: KernelGraph) -> KernelGraph:
        """The graph with the types of the outputs that it takes from others (S13, S23).

        Raises:
            GraphError: KG343 for a graph or an output that is not there, KG352 for a type that is declared otherwise.
        """
        tensors: dict[str, TensorSpec] = {}
        for name, spec in graph.tensors.items():
            reference = spec.from_graph
            if reference is None:
                tensors[name] = spec
                continue
            if name in self.own and spec.dtype is not None and spec.shape is not None:
                tensors[name] = spec.model_copy(update={"from_graph": None, "role": spec.role or "input"})
                continue
            other = self._output(graph, name, reference.graph, reference.output)
            kind = other.type
            if spec.dtype is not None and spec.dtype != kind.dtype:
                raise GraphError(
                    f"{name!r} is declared {spec.dtype}, but output {reference.output!r} of graph "
                    f"{reference.graph!r} is {kind.dtype}",
                    code="KG352",
                    where=graph.place("tensors", name, "dtype"),
                )
            if name not in self.own:
                self._from[name] = (reference.graph, reference.output)
            update: dict[str, object] = {"from_graph": None, "dtype": kind.dtype, "role": spec.role or "input"}
            # A declared shape stays: it may name dimensions. Whether it is the output's is seen when it is bound.
            tensors[name] = spec.model_copy(
                update=update | ({} if spec.shape is not None else {"shape": list(kind.shape)})
            )
        return graph.model_copy(update={"tensors": tensors}) if self._from or self.own else graph

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the outputs that it takes, by the name they have here: they tell dimensions."""
        return {name: self.before[g].planned.graph.tensors[o].type.shape for name, (g, o) in self._from.items()}

    def _output(self, graph: KernelGraph, name: str, other: str, output: str) -> BoundTensor:
        place = graph.place("tensors", name, "from_graph")
        if other not in self.before:
            known = ", ".join(self.before) or "none"
            raise GraphError(
                f"{name!r} is an output of graph {other!r}, which does not run before {self.name!r}",
                code="KG343",
                where=place,
                help=did_you_mean(other, self.before) or f"graphs before it: {known}",
            )
        bound = self.before[other].planned.graph
        if output not in bound.outputs:
            raise GraphError(
                f"graph {other!r} has no output {output!r}",
                code="KG343",
                where=place,
                help=did_you_mean(output, bound.outputs) or f"outputs: {', '.join(bound.outputs)}",
            )
        return bound.tensors[output]

    def adopted(self, program: Program) -> Program:
        """The program in which what is shared takes no bytes of its own.

        Raises:
            GraphError: KG352 where the shape declared for another graph's output is not the output's.
        """
        stored = self._stored_before()
        buffers, notes = list(program.buffers), []
        for index, buffer in enumerate(buffers):
            source = self._source(program, buffer, stored)
            if source is None:
                continue
            graph, tensor = source
            self.sources[index] = source
            self._elsewhere |= dict.fromkeys(buffer.tensors, source)
            why = f"{tensor} of graph {graph}"
            notes.append(
                Warning("W-SHARED", f"{buffer.name!r} lies in {why}: aliased, 0 bytes", ("tensors", buffer.name))
            )
            buffers[index] = replace(buffer, nbytes=0, shares={**(buffer.shares or {}), buffer.name: why})
        return replace(program, buffers=tuple(buffers), warnings=(*program.warnings, *notes))

    def _source(self, program: Program, buffer: Buffer, stored: Mapping[tuple[object, ...], Source]) -> Source | None:
        for name in buffer.tensors:
            if name not in self._from:
                continue
            graph, output = self._from[name]
            mine, theirs = program.graph.tensors[name].type, self.before[graph].planned.graph.tensors[output].type
            if mine.shape != theirs.shape:
                raise GraphError(
                    f"{name!r} is declared {list(mine.shape)}, but output {output!r} of graph {graph!r} has shape "
                    f"{list(theirs.shape)}",
                    code="KG352",
                    where=program.graph.source.place("tensors", name, "shape"),
                )
            return self._from[name] if self._has_bytes(graph, output) else None
        if buffer.memory_class not in (MemoryClass.PARAMETER, MemoryClass.CONSTANT) or len(buffer.tensors) == 0:
            return None
        key = _stored_as(program, buffer)
        return stored.get(key) if key is not None and not self.own.intersection(buffer.tensors) else None

    def _has_bytes(self, graph: str, output: str) -> bool:
        return output in self.before[graph].planned.slots

    def _stored_before(self) -> dict[tuple[object, ...], Source]:
        found: dict[tuple[object, ...], Source] = {}
        for name, other in self.before.items():
            for buffer in other.planned.buffers:
                key = _stored_as(other.planned, buffer)
                if key is not None:
                    found.setdefault(key, (name, buffer.name))
        return found

    def check_given(self, names: Iterable[str]) -> None:
        """UsageError KG213 for an array of what lies in the bytes of a graph before: that has the say there."""
        for name in names:
            if name in self._elsewhere:
                graph, tensor = self._elsewhere[name]
                raise UsageError(
                    f"{name!r} lies in {tensor} of graph {graph}",
                    code="KG213",
                    help="for bytes of its own give the array when the session is opened",
                )

    def places(self) -> dict[int, int]:
        """Addresses of what is shared, by buffer; the graphs before are on the device."""
        found = {}
        for index, (graph, tensor) in self.sources.items():
            loaded = self.before[graph].loaded
            found[index] = loaded.address(loaded.program.slots[tensor])
        return found


def _stored_as(program: Program, buffer: Buffer) -> tuple[object, ...] | None:
    """The file and key that a parameter's bytes come from, with their type; None for other buffers."""
    tensor = program.graph.tensors.get(buffer.name)
    spec = tensor.spec if tensor is not None else None
    if tensor is None or spec is None or spec.data is None or spec.init is not None or tensor.producer is not None:
        return None
    if buffer.memory_class not in (MemoryClass.PARAMETER, MemoryClass.CONSTANT) or buffer.nbytes > tensor.nbytes:
        return None
    file, _, key = spec.data.partition("#")
    source = program.graph.source
    path = inside(file, folder=source.folder, allow_external=source.allows_external_data)
    return path.resolve(), key, tensor.type.dtype, tensor.type.shape
