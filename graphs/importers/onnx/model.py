"""A whole model: its inputs, nodes and outputs to a graph document; to a KernelGraph, or to files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgrun.graphs.data_onnx import Message, import_onnx, type_name
from kgrun.graphs.data_save import file_name, save_bytes, save_stored
from kgrun.graphs.dtypes import DTYPES, ONNX_DTYPES
from kgrun.graphs.errors import GraphError, Place
from kgrun.graphs.importers.onnx.container import Container, open_container
from kgrun.graphs.importers.onnx.dims import Dims
from kgrun.graphs.importers.onnx.document import Reference, Writer
from kgrun.graphs.importers.onnx.errors import Faults, Unsupported
from kgrun.graphs.importers.onnx.translate import Translator, names_read
from kgrun.graphs.importers.onnx.uses import Level, Scope, onnx_schema
from kgrun.graphs.importers.onnx.values import Value
from kgrun.graphs.importers.text import document_text, name_text
from kgrun.graphs.operators.base import TensorType
from kgrun.graphs.operators.known import LIMIT
from kgrun.graphs.records import dataclass
from kgrun.graphs.schema.graph import SCHEMA_ID

if TYPE_CHECKING:
    import numpy as np

    from kgrun.graphs.schema.graph import KernelGraph

    # A list is a sequence, None an optional value that is absent.
    Values = Mapping[str, np.ndarray[Any, Any] | list[np.ndarray[Any, Any]] | None]

OPSETS = range(7, 29)


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """The graph document of a model, and the keys of the arrays that it reads from the model's file."""

    document: dict[str, Any]
    keys: tuple[str, ...]
    container: Container


def import_model(
    path: Path,
    *,
    dims: Mapping[str, int] | None = None,
    values: Values | None = None,
    reference: Reference | None = None,
) -> ImportedModel:
    """Translate the model at `path`.

    Args:
        dims: values of dimensions, by the model's names or kgrun's; what follows from them is folded.
        values: host arrays of inputs; branches and loops that they decide are inlined. The graph then holds for them
            alone. A list gives a sequence's length: its tensors become inputs NAME[0], NAME[1] and so on.
        reference: from the key of an array to the `data` of its tensor; into the model's file where it is left out.

    Raises:
        GraphError: KG380 for a file that is no ONNX model, KG381 for what cannot be imported (`others` has the rest),
            KG382 for an opset that kgrun does not know, KG37x for arrays.
        UsageError: KG221 for a dimension that the model has not.
        DeviceUnavailable: KG711 where the onnx package is not installed.
    """
    container = open_container(path)
    model = container.model
    faults = Faults(str(path))
    bound = Dims(dims or {})
    translator = Translator(container, faults)
    graph = model.graph
    scope = Scope()
    wanted = names_read(graph.node, (output.name for output in graph.output))
    level = Level(scope, _versions(model, path), "", "", wanted)
    translator.initializers(graph, level, ("graph",))
    for index, info in enumerate(graph.input):
        if info.name in scope.values:
            continue  # an initializer that older models also list as an input
        made: Value | list[Value] | None
        try:
            made = _given(info, bound, values or {})
        except Unsupported as error:
            faults.add(("graph", "input", index), info.name, "input", error)
            made = Value(info.name, broken=True)
        scope.values[info.name] = made
        translator.emitter.body.inputs += made if isinstance(made, list) else [made] if made is not None else []
    bound.check()
    translator.walk(graph.node, level, ("graph",))
    outputs = _outputs(graph, scope, faults)
    faults.raise_any()
    writer = Writer(reference or (lambda key: f"{path.name}#{key}"))
    document = writer.document(
        graph.name or name_text(path.stem), _origin(model, path, level), translator.emitter.body, outputs, bound
    )
    return ImportedModel(document, tuple(writer.keys), container)


def onnx_graph(
    path: Path,
    *,
    dims: Mapping[str, int] | None = None,
    values: Values | None = None,
    allow_external_data: bool = False,
) -> KernelGraph:
    """The model at `path` as a graph whose weights stay in its file. Raises as `import_model`."""
    from kgrun.graphs.load.graph import made_graph

    made = import_model(path, dims=dims, values=values)
    graph = made_graph(made.document, name=str(path))
    graph._file = str(path)
    graph._folder = path.parent
    graph._allow_external = allow_external_data
    return graph


def write_onnx(path: Path, graph: Path, dims: Mapping[str, int]) -> list[Path]:
    """Write the graph of the model at `path` to `graph` and its weights to STEM.safetensors beside it.

    Returns the files read. The same model gives the same bytes. Raises as `import_model`, and UsageError KG270 when a
    file cannot be written.
    """
    weights = graph.with_name(f"{file_name(graph.stem)}.safetensors")
    made = import_model(path, dims=dims, reference=lambda key: f"{weights.name}#{key}")
    if made.keys:
        save_stored(weights, {key: made.container.stored(key) for key in made.keys})
    save_bytes(graph, document_text({"$schema": SCHEMA_ID, **made.document}).encode())
    return [path, *made.container.files()]


def _origin(model: Message, path: Path, level: Level) -> str:
    """Where the graph comes from, for its `doc`."""
    maker = " ".join(str(part) for part in (model.producer_name, model.producer_version) if part)
    opset = f", opset {level.versions['']}" if level.versions[""] else ""
    return f"from {name_text(path.name)}{opset}" + (f", made by {maker}" if maker else "")


def _versions(model: Message, path: Path) -> dict[str, int]:
    """Opset versions by domain; those of domains that no node uses do not matter."""
    found = {("" if each.domain == "ai.onnx" else each.domain): each.version for each in model.opset_import}
    version = found.setdefault("", max(OPSETS) if not model.opset_import else 0)
    used = {node.op_type for node in model.graph.node if node.domain in ("", "ai.onnx")}
    if used and version not in OPSETS and not _unchanged(used, version):
        raise GraphError(
            f"opset {version} of ONNX; kgrun knows {OPSETS.start} to {OPSETS.stop - 1}",
            code="KG382",
            where=Place(str(path), ("opset_import",)),
            help="convert the model, or export it again",
        )
    if used:
        found[""] = min(max(version, OPSETS.start), import_onnx().defs.onnx_opset_version())
    return found


def _unchanged(ops: Iterable[str], version: int) -> bool:
    """Whether `ops` mean in opset `version` what they do in the oldest one that kgrun knows."""
    if not 1 <= version < OPSETS.start:
        return False
    pairs = [[onnx_schema(op, "", each) for each in (version, OPSETS.start)] for op in ops]
    return all(old is not None and new is not None and old.since_version == new.since_version for old, new in pairs)


def _given(info: Message, dims: Dims, values: Values) -> Value | list[Value] | None:
    """An input: a tensor; where `values` say so, the tensors of a sequence, or None for an absent optional value."""
    given = values.get(info.name)
    if isinstance(given, list):
        return [_like(f"{info.name}[{index}]", item) for index, item in enumerate(given)]
    if info.type.HasField("optional_type") and info.name in values:
        return None if given is None else _like(info.name, given)
    if given is None and info.name in values:
        raise Unsupported("an input that is absent")
    return _input(info, dims, given)


def _like(name: str, array: np.ndarray[Any, Any]) -> Value:
    """An input of the array's type; its elements are not looked at."""
    dtype, shape = array.dtype.name, tuple(array.shape)
    if dtype not in DTYPES:
        raise Unsupported(f"element type {dtype}")
    return Value(name, TensorType(dtype, shape), exact=True, declared=(dtype, list(shape)))


def _input(info: Message, dims: Dims, given: np.ndarray[Any, Any] | None) -> Value:
    if not info.type.HasField("tensor_type"):
        raise Unsupported(f"an input that is no tensor ({info.type.WhichOneof('value')})")
    tensor = info.type.tensor_type
    if tensor.elem_type not in ONNX_DTYPES:
        raise Unsupported(f"element type {type_name(tensor.elem_type)}")
    if not tensor.HasField("shape") and given is None:
        raise Unsupported("an input of unknown rank")
    dtype = ONNX_DTYPES[tensor.elem_type]
    entries: list[int | str] = []
    for axis, dim in enumerate(tensor.shape.dim):
        static = dim.HasField("dim_value") and dim.dim_value >= 0
        entries.append(dim.dim_value if static else dims.entry(dim.dim_param, info.name, axis))
    if given is not None and not tensor.HasField("shape"):
        entries = list(given.shape)
    exact = all(isinstance(entry, int) for entry in entries)
    shape, elements = tuple(dims.guess(entry) for entry in entries), None
    if given is not None and given.size <= LIMIT and given.shape == shape:  # else its dimensions are not bound to it
        elements = tuple(given.ravel().tolist())
    kind = TensorType(dtype, shape, elements)
    return Value(info.name, kind, exact, declared=(dtype, entries))


def _outputs(graph: Message, scope: Scope, faults: Faults) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for index, info in enumerate(graph.output):
        value = scope.values.get(info.name)
        if isinstance(value, Value):
            found[info.name] = value
            continue
        if isinstance(value, list):
            found |= {f"{info.name}[{place}]": item for place, item in enumerate(value)}
            continue
        reason = "an output that nothing makes, or that is absent"
        faults.add(("graph", "output", index), info.name, "output", Unsupported(reason))
    return found
