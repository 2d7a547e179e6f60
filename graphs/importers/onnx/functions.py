"""Functions inlined: those that the model brings, and those that ONNX defines operators by."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kgrun.graphs.data_onnx import Message, import_onnx
from kgrun.graphs.dtypes import ONNX_DTYPES
from kgrun.graphs.importers.onnx.container import function_prefix
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Level, Scope, Use, onnx_schema
from kgrun.graphs.importers.onnx.values import Value

if TYPE_CHECKING:
    from kgrun.graphs.importers.onnx.translate import Results, Translator

MAX_DEPTH = 32
_HELP = {
    "com.microsoft.nchwc": "the model was optimised for one kind of processor: "
    "save it with ONNX Runtime's graph_optimization_level ORT_ENABLE_EXTENDED"
}


def has_body(node: Message) -> bool:
    """Whether ONNX defines the node's operator by a function."""
    schema = onnx_schema(node.op_type, "" if node.domain == "ai.onnx" else node.domain, None)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def inline_local(translator: Translator, use: Use, function: Message) -> Results:
    """The body of a model-local function in place of the node that calls it."""
    defaults = {each.name: each for each in function.attribute_proto}
    return _inline(translator, use, function, defaults, function_prefix(function))


def inline_text(translator: Translator, use: Use, function: Message) -> Results:
    """The body of a function that stands for an operator, and that no file has."""
    return _inline(translator, use, function, {}, None)


def inline_schema(translator: Translator, use: Use) -> Results:
    """The body that ONNX defines the operator by; Unsupported where it has none for these inputs."""
    schema = use.schema()
    if schema is None:
        raise Unsupported(f"kgrun has no operator {_full_name(use)}, nor has ONNX", help=_HELP.get(use.domain))
    version = use.level.versions.get(use.domain, 0)
    body = _plain_body(schema.name, schema.domain, schema.since_version, version)
    if body is None:
        body = _body_for(use, schema, version)
    if body is None:
        raise Unsupported(f"kgrun has no operator {_full_name(use)}")
    defaults = {name: each.default_value for name, each in schema.attributes.items() if each.default_value.name}
    return _inline(translator, use, body, defaults, None)


@lru_cache(maxsize=256)
def _plain_body(name: str, domain: str, since: int, version: int) -> Message | None:
    schema = import_onnx().defs.get_schema(name, since, domain)
    fitting = [each for each in schema.function_opset_versions if each <= version]
    if not fitting:
        return None
    return import_onnx().FunctionProto.FromString(schema.get_function_with_opset_version(max(fitting)))


def _body_for(use: Use, schema: Any, version: int) -> Message | None:
    """The body of a function that depends on the node's attributes and on its inputs' types."""
    onnx = import_onnx()
    fitting = [each for each in schema.context_dependent_function_opset_versions if each <= version]
    if not fitting:
        return None
    types = [_type_proto(each) for each in use.inputs]
    node = onnx.NodeProto()
    node.CopyFrom(use.node)
    given = {attribute.name for attribute in node.attribute}
    node.attribute.extend(
        each.default_value for name, each in schema.attributes.items() if name not in given and each.default_value.name
    )
    try:
        made = schema.get_context_dependent_function_with_opset_version(max(fitting), node.SerializeToString(), types)
    except Exception as error:
        raise Unsupported(f"ONNX makes no function of it: {error}") from None
    return onnx.FunctionProto.FromString(made) if made else None


def _type_proto(value: Value | list[Value] | None) -> bytes:
    onnx = import_onnx()
    made = onnx.TypeProto()
    if isinstance(value, list):
        _fill(made.sequence_type.elem_type.tensor_type, value[0] if value else None)
    elif value is not None:
        _fill(made.tensor_type, value)
    return bytes(made.SerializeToString())


def _fill(tensor: Message, value: Value | None) -> None:
    """Write what is known of `value` into the tensor type."""
    if value is None or value.type is None:
        raise Unsupported("the types of its inputs are not known")
    tensor.elem_type = next(number for number, name in ONNX_DTYPES.items() if name == value.type.dtype)
    tensor.shape.SetInParent()
    for extent in value.type.shape:
        dim = tensor.shape.dim.add()
        if value.exact:
            dim.dim_value = extent


def _inline(
    translator: Translator, use: Use, function: Message, defaults: Mapping[str, Message], prefix: str | None
) -> Results:
    """Walk the function's nodes with the node's inputs and attributes; returns the values of its outputs."""
    from kgrun.graphs.importers.onnx.translate import names_read

    if use.level.depth >= MAX_DEPTH:
        raise Unsupported(f"functions inside functions, {MAX_DEPTH} deep")
    given = {**defaults, **{attribute.name: attribute for attribute in use.node.attribute}}
    scope = Scope()
    for index, name in enumerate(function.input):
        scope.values[name] = use.inputs[index] if index < len(use.inputs) else None
    versions = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in function.opset_import}
    nodes = [_with_attributes(node, given) for node in function.node]
    outputs = [name for name, wanted in zip(function.output, use.wanted, strict=False) if wanted]
    level = Level(
        scope, {**use.level.versions, **versions}, prefix, f"{use.name}/", names_read(nodes, outputs),
        use.level.depth + 1,
    )  # fmt: skip
    before = len(translator.faults.found)
    translator.walk(nodes, level, (*_place(use), function.name))
    inner = translator.faults.found[before:]
    if inner and prefix is None:
        # What is missing is the operator: that its definition has parts that are missing too is no news.
        del translator.faults.found[before:]
        raise Unsupported(f"kgrun has no operator {_full_name(use)}, nor all of its definition: {inner[0].message}")
    return [scope.values.get(name) if name in level.wanted else None for name in function.output]


def _place(use: Use) -> tuple[str | int, ...]:
    return ("node", use.position)


def _with_attributes(node: Message, given: Mapping[str, Message]) -> Message:
    """`node` with references to the function's attributes replaced by what the caller gives."""
    if not _refers(node):
        return node
    made = import_onnx().NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            found = given.get(attribute.ref_attr_name)
            if found is not None:
                copied = made.attribute.add()
                copied.CopyFrom(found)
                copied.name = attribute.name
            continue
        copied = made.attribute.add()
        copied.CopyFrom(attribute)
        if attribute.HasField("g"):
            nodes = [_with_attributes(each, given) for each in attribute.g.node]
            del copied.g.node[:]
            copied.g.node.extend(nodes)
    return made


def _refers(node: Message) -> bool:
    return any(
        attribute.ref_attr_name or (attribute.HasField("g") and any(map(_refers, attribute.g.node)))
        for attribute in node.attribute
    )


def _full_name(use: Use) -> str:
    return f"{use.domain}.{use.op}" if use.domain else use.op
