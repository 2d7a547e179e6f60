"""The whole graph file, format version 1, and its JSON Schema."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from kgrun.graphs.errors import PathPart
from kgrun.graphs.load.limits import MAX_CAPACITY
from kgrun.graphs.schema.common import Exactly, ExprText, Name, NonNegativeInt, PositiveInt, Record
from kgrun.graphs.schema.kernels import KernelSpec
from kgrun.graphs.schema.nodes import Node
from kgrun.graphs.schema.origin import Origin
from kgrun.graphs.schema.tensors import TensorSpec

SCHEMA_ID = "https://kgrun.dev/schema/graph-1.json"


class DimSpec(Record):
    """A named dimension; without a default it must be given by `--dim`."""

    default: NonNegativeInt | None = None
    min: NonNegativeInt = 0
    max: NonNegativeInt | None = None
    multiple_of: PositiveInt | None = None
    buckets: list[PositiveInt] | None = Field(default=None, description="sizes to round up to, for cached plans")
    doc: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> DimSpec:
        top = self.max if self.max is not None else None
        if top is not None and top < self.min:
            raise ValueError(f"max {top} is less than min {self.min}")
        return self


class QueueSpec(Record):
    """A data queue: each run, a `GetNext` node takes one batch of its items from it (S143).

    `data` names an .npz file or a folder beside the graph; `--queue` names other data and beats the settings.
    """

    items: list[Name] = Field(min_length=1, description="tensors that it feeds, named as the arrays of the data")
    capacity: PositiveInt = Field(2, le=MAX_CAPACITY, description="batches that it holds ahead of the run")
    data: Name | None = None
    shuffle: NonNegativeInt | None = Field(None, description="seed; without it samples come in order")
    epochs: NonNegativeInt = Field(1, description="times that the data are gone through; 0: without end")
    last: Literal["drop", "pad", "error"] = Field("drop", description="what becomes of a last batch that is not full")
    timeout: Annotated[float | NonNegativeInt, Field(gt=0)] = Field(30, description="seconds to wait for a batch")
    doc: str | None = None


class GraphBody(Record):
    """Tensors and nodes; the file's top level, and the bodies of control operators."""

    inputs: list[Name] | None = Field(None, description="order of the declared inputs; others are discovered (S12)")
    tensors: dict[Name, TensorSpec] = {}
    nodes: list[Node] = []
    outputs: list[Name] = []


class KernelGraph(Origin, GraphBody):
    """What the user wrote. Frozen; carries where it was read from, for messages and for the files beside it."""

    kgrun: Annotated[Literal[1], Exactly] = Field(description="format version")
    schema_: str | None = Field(None, alias="$schema")
    name: Name = "graph"
    doc: str | None = None
    dims: dict[Name, NonNegativeInt | DimSpec] = {}
    kernels: dict[Name, KernelSpec] = {}
    contiguous: list[list[Name]] = Field([], description="tensors placed side by side, in order (S57)")
    groups: dict[Name, list[NonNegativeInt | ExprText]] = Field(
        {}, description="ranks of a communication group, in order; expressions of `rank` give each rank its own"
    )
    queues: dict[Name, QueueSpec] = {}
    graphs: dict[Name, GraphBody] = Field({}, description="bodies of If and Loop")

    _file: str | None = PrivateAttr(None)
    _folder: Path | None = PrivateAttr(None)
    _allow_external: bool = PrivateAttr(False)
    _body: str | None = PrivateAttr(None)  # of which body of `graphs` this is the graph (`graphs.control`)
    _locate: Callable[[tuple[PathPart, ...]], tuple[int, int] | None] | None = PrivateAttr(None)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a graph file."""
    schema = KernelGraph.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **schema,
        "title": "kgrun graph, version 1",
    }
