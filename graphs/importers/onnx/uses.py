"""One node of the model while it is translated: what adapters see of it, and how they add kgrun nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from kgrun.graphs.data_onnx import Message, import_onnx
from kgrun.graphs.importers.onnx.emitter import Emitter
from kgrun.graphs.importers.onnx.errors import Faults, Unsupported
from kgrun.graphs.importers.onnx.values import Value, inline
from kgrun.graphs.operators.base import Constant
from kgrun.graphs.records import dataclass


@dataclass(slots=True, eq=False)
class Scope:
    """Values by the model's names; inner graphs also see those around them."""

    values: dict[str, Value | list[Value] | None] = field(default_factory=dict)
    outer: Scope | None = None

    def find(self, name: str) -> Value | list[Value] | None:
        """The value, a list of values for a sequence, None for an absent one; Unsupported for an unknown name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise Unsupported(f"tensor {name!r} is not defined", code="KG343")


@dataclass(frozen=True, slots=True)
class Level:
    """A list of nodes being walked: the model's graph, a subgraph, or a function's body.

    Attributes:
        versions: opset version by domain.
        prefix: what begins the keys of its arrays in the container; None where they are in no container.
        label: what begins the names of its nodes and tensors.
        wanted: names that something reads.
        depth: of functions inside functions.
    """

    scope: Scope
    versions: Mapping[str, int]
    prefix: str | None
    label: str
    wanted: frozenset[str]
    depth: int = 0


@dataclass(slots=True, eq=False)
class Use:
    """One node of the model.

    Attributes:
        version: the opset version in which its operator last changed; 0 where ONNX does not know it.
        attributes: plain values; subgraphs are not among them.
        wanted: for each output, whether anything reads it.
    """

    op: str
    domain: str
    version: int
    name: str
    inputs: list[Value | list[Value] | None]
    attributes: dict[str, Any]
    wanted: list[bool]
    node: Message
    level: Level
    position: int
    emitter: Emitter
    path: Path
    faults: Faults
    _parts: int = 0

    @property
    def outputs(self) -> int:
        """How many outputs are asked for: those after the last wanted one are not."""
        return max((index + 1 for index, wanted in enumerate(self.wanted) if wanted), default=1)

    def input(self, index: int) -> Value | None:
        """Input `index`, None where it is absent."""
        found = self.inputs[index] if index < len(self.inputs) else None
        if isinstance(found, list):
            raise Unsupported(f"input {index} is a sequence")
        return found

    def needed(self, index: int) -> Value:
        """Input `index`; Unsupported where it is absent."""
        found = self.input(index)
        if found is None:
            raise Unsupported(f"input {index} is missing", code="KG330")
        return found

    @property
    def tensors(self) -> list[Value | None]:
        """All inputs; Unsupported where one is a sequence."""
        return [self.input(index) for index in range(len(self.inputs))]

    def known(self, index: int) -> Constant | None:
        """The elements of input `index` where they are known before the run."""
        found = self.input(index)
        return None if found is None else found.known

    def ints(self, items: Sequence[int]) -> Value:
        """A constant list of int64."""
        return self.constant("int64", (len(items),), tuple(items))

    def scalar(self, number: int) -> Value:
        """A constant int64."""
        return self.constant("int64", (), (number,))

    def constant(self, dtype: str, shape: tuple[int, ...], elements: Constant) -> Value:
        """A small constant."""
        self._parts += 1
        return inline(f"{self.name}/{self._parts}", dtype, shape, elements)

    def part(self, op: str, inputs: Sequence[Value | None], **attributes: Any) -> Value:
        """The result of a kgrun node that does a part of the work."""
        return self.parts(op, inputs, 1, **attributes)[0]

    def parts(self, op: str, inputs: Sequence[Value | None], outputs: int, **attributes: Any) -> list[Value]:
        """The results of a kgrun node that does a part of the work."""
        self._parts += 1
        return self.emitter.op(op, inputs, attributes, outputs, f"{self.name}/{op}_{self._parts}")

    def result(
        self, inputs: Sequence[Value | None], attributes: Mapping[str, Any] | None = None, op: str | None = None
    ) -> list[Value]:
        """The results of the kgrun node that stands for this one, under its name."""
        from kgrun.graphs.importers.onnx.attributes import for_schema
        from kgrun.graphs.operators import all_schemas

        op = op or self.op
        given = self.attributes if attributes is None else dict(attributes)
        schema, outputs = all_schemas().get(op), self.outputs
        if schema is not None:
            given = for_schema(schema, given, self.defaults, self.path)
            outputs = len(self.wanted) if schema.any_outputs else outputs
        return self.emitter.op(op, inputs, given, outputs, self.name)

    @property
    def defaults(self) -> dict[str, Any]:
        """Default values of the ONNX operator's attributes."""
        from kgrun.graphs.importers.onnx.attributes import plain_attribute

        schema = self.schema()
        if schema is None:
            return {}
        rows = {name: each.default_value for name, each in schema.attributes.items() if each.default_value.name}
        return {name: plain_attribute(value) for name, value in rows.items()}

    def schema(self) -> Any:
        """ONNX's schema of the operator at this version, None where it has none."""
        return onnx_schema(self.op, self.domain, self.level.versions.get(self.domain))


def onnx_schema(op: str, domain: str, version: int | None) -> Any:
    """ONNX's schema of `op` as of opset `version`, None where it has none."""
    onnx = import_onnx()
    try:
        return onnx.defs.get_schema(op, version or onnx.defs.onnx_opset_version(), domain)
    except onnx.defs.SchemaError:
        return None
