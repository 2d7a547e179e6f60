"""What an operator schema is: arity, attributes, type inference, and what memory planning must know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any, Literal, NoReturn

from kgrun.graphs.dtypes import DTYPES, ONNX_DTYPES, itemsize
from kgrun.graphs.errors import GraphError, PathPart, did_you_mean
from kgrun.graphs.records import dataclass

# "number" is any scalar, "nan", "inf" and "-inf" included; "dtype" a name of DTYPES or ONNX's number for it.
AttributeKind = Literal["int", "float", "string", "ints", "floats", "strings", "number", "numbers", "dtype"]
Scalar = bool | int | float
Constant = tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """What is known of a tensor before anything runs.

    Attributes:
        dtype: a name of `graphs.dtypes.DTYPES`.
        shape: every dimension known.
        value: the elements in row-major order, where they are known at bind time (constants, shapes, axes).
    """

    dtype: str
    shape: tuple[int, ...]
    value: Constant | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * itemsize(self.dtype)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of an operator. `default` None means: absent unless given."""

    kind: AttributeKind
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()


class InferenceError(GraphError):
    """A fault found by inference; `path` is relative to the node, for example ("inputs", 1)."""

    default_code = "KG330"

    def __init__(self, message: str, *path: PathPart, help: str | None = None) -> None:
        super().__init__(message, help=help)
        self.path = path


class ValueUnknown(InferenceError):
    """Inference needs the value of an input that is only known at run time."""

    default_code = "KG332"


@dataclass(frozen=True, slots=True)
class Fused:
    """Elementwise calls that one kernel computes, in their order; the last one's result is that of all.

    Attributes:
        calls: as they were, each with one result.
        operands: for each call, by position of its inputs: an input of the whole by its index, the result of an earlier
            call by the number of inputs and the call's index, None where it is absent.
    """

    calls: tuple[OpCall, ...]
    operands: tuple[tuple[int | None, ...], ...]


@dataclass(slots=True)
class OpCall:
    """One use of an operator with everything known: what inference gets, and what the devices lower.

    Attributes:
        op, node: the operator's and the node's name.
        inputs: types by position; None for an optional input that is absent.
        attributes: checked, defaults filled in.
        outputs: types by position once inferred; `output_count` positions are asked for.
        exact: whether these are the results' shapes; inference of a dynamic operator clears it where they are upper
            bounds, and only the run tells.
        unnamed: outputs that the graph has no name for: an operator need not compute them.
        turned: inputs that lie in memory with their last two axes swapped; `inputs` has their types as the operator
            means them.
        fused: what is computed with it; `inputs` are then those of all of it.
    """

    op: str
    node: str
    inputs: tuple[TensorType | None, ...]
    attributes: Mapping[str, Any]
    output_count: int = 1
    outputs: tuple[TensorType, ...] = ()
    exact: bool = True
    unnamed: frozenset[int] = frozenset()
    turned: frozenset[int] = frozenset()
    fused: Fused | None = None

    @property
    def label(self) -> str:
        """The operator, or those that are computed together: `Div+Erf+Add`."""
        return self.op if self.fused is None else "+".join(call.op for call in self.fused.calls)

    def input(self, index: int) -> TensorType:
        """Input `index`; InferenceError when it is absent."""
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            self.fail(f"{self.op} needs input {index}", "inputs")
        return found

    def optional(self, index: int) -> TensorType | None:
        """Input `index`, or None when it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def lying(self, index: int) -> TensorType | None:
        """Input `index` with the shape that it has in memory, or None when it is absent."""
        found = self.optional(index)
        if found is None or index not in self.turned:
            return found
        *lead, rows, columns = found.shape
        return TensorType(found.dtype, (*lead, columns, rows))

    def ints(self, index: int, attribute: str | None = None) -> tuple[int, ...] | None:
        """The known integers of input `index`, or of `attribute` where older opsets have them; None without either."""
        found = self.optional(index)
        if found is None:
            value = self.attributes.get(attribute) if attribute else None
            return None if value is None else tuple(value)
        if DTYPES[found.dtype].kind not in ("int", "uint"):
            self.fail(f"{self.op}: input {index} is {found.dtype}, integers are needed", "inputs", index)
        return tuple(int(v) for v in self.known(index))

    def known(self, index: int) -> tuple[Any, ...]:
        """The elements of input `index`; ValueUnknown where only the run tells them."""
        value = self.input(index).value
        if value is None:
            raise ValueUnknown(
                f"input {index} of {self.op} must be known before the run",
                "inputs",
                index,
                help="make it a constant with `value`, or give it with --input",
            )
        return value

    def axis(self, value: int, rank: int, what: str = "axis") -> int:
        """`value` counted from the front; InferenceError when it is outside [-rank, rank)."""
        if not -rank <= value < rank:
            self.fail(f"{what} {value} is outside [-{rank}, {rank - 1}]", "attributes", what)
        return value + rank if value < 0 else value

    def check_range(self, value: Scalar, dtype: str, attribute: str) -> None:
        """InferenceError where `attribute` has a `value` that an integer `dtype` cannot hold."""
        limits = DTYPES[dtype].limits
        if limits and not limits[0] <= value <= limits[1]:
            self.fail(f"{self.op}: {value} is no {dtype}", "attributes", attribute)

    def fail(self, message: str, *path: PathPart, help: str | None = None) -> NoReturn:
        """Raise an InferenceError at `path` of the node."""
        raise InferenceError(message, *path, help=help)


Infer = Callable[[OpCall], Sequence[TensorType]]
Cost = Callable[[OpCall], int]
View = Callable[[OpCall], bool]


@dataclass(frozen=True, slots=True)
class OpSchema:
    """One operator.

    Attributes:
        name: ONNX's name.
        family: the module that holds its kernels on each device.
        inputs, outputs: least and greatest number.
        infer: output types from an OpCall; raises through `call.fail`.
        dtypes: what input 0 may be (all inputs, unless `infer` says otherwise).
        attributes: by name.
        host_inputs: positions that must be known before the run (shapes, axes) and need no device memory.
        alias: the input whose bytes output 0 is a view of (Reshape and its like): no kernel, no memory.
        view: whether a call leaves the bytes of input 0 as they are, so that it is a view of them like those.
        turnable: inputs that its kernels read as well where they lie turned (`OpCall.turned`).
        inplace: inputs whose memory output 0 may take over when they die here and the sizes match.
        flops: floating-point operations of a call, for reports.
        dynamic: output shapes depend on the elements of the inputs. `infer` gives the exact types where these are
            known at bind time; otherwise upper bounds, axis by axis, and clears `OpCall.exact`.
        data: what the device kernels need to know of this operator, for example a scalar expression.
        domain: "" for ONNX's own operators, ONNX's name of another set, or "kgrun" for what no ONNX set has.
    """

    name: str
    family: str
    inputs: tuple[int, int]
    infer: Infer
    outputs: tuple[int, int] = (1, 1)
    dtypes: frozenset[str] = frozenset(DTYPES)
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    host_inputs: frozenset[int] = frozenset()
    alias: int | None = None
    view: View | None = None
    turnable: frozenset[int] = frozenset()
    inplace: tuple[int, ...] = ()
    flops: Cost | None = None
    dynamic: bool = False
    data: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""

    @property
    def any_outputs(self) -> bool:
        """Whether a node has as many outputs as it likes: their number means something, read or not."""
        return self.outputs[1] >= 1 << 30


_REGISTRY: dict[str, OpSchema] = {}


def register(*schemas: OpSchema) -> None:
    """Add operators; a name can be added once."""
    for schema in schemas:
        if schema.name in _REGISTRY:
            raise ValueError(f"operator {schema.name} is registered twice")
        _REGISTRY[schema.name] = schema


def registered() -> Mapping[str, OpSchema]:
    """All operators by name."""
    return _REGISTRY


def checked_attributes(schema: OpSchema, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with kinds checked and defaults filled in; InferenceError for what does not fit."""
    return check_attributes(schema.name, schema.attributes, given)


def check_attributes(op: str, attributes: Mapping[str, Attribute], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` against the attributes of operator `op`, as `checked_attributes`."""
    for name in given:
        if name not in attributes:
            known = ", ".join(sorted(attributes)) or "none"
            help = did_you_mean(name, attributes) or f"attributes of {op}: {known}"
            raise InferenceError(f"{op} has no attribute {name!r}", "attributes", name, help=help)
    values = {}
    for name, attribute in attributes.items():
        if name in given:
            values[name] = _checked(op, name, attribute, given[name])
        elif attribute.required:
            raise InferenceError(f"{op} needs attribute {name!r}", "attributes")
        elif attribute.default is not None:
            values[name] = attribute.default
    return values


_ACCEPTED: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "string": (str,),
    "number": (bool, int, float),
    "dtype": (str, int),
}


def _checked(op: str, name: str, attribute: Attribute, value: Any) -> Any:
    plural = attribute.kind.endswith("s")
    kind = attribute.kind.removesuffix("s")
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if kind in ("float", "number"):
        items = [float(i) if i in ("nan", "inf", "-inf") else i for i in items]
    if isinstance(value, (list, tuple)) != plural or not all(
        isinstance(i, _ACCEPTED[kind]) and (kind == "number" or not isinstance(i, bool)) for i in items
    ):
        raise InferenceError(f"attribute {name!r} of {op} takes {attribute.kind}, got {value!r}", "attributes", name)
    if attribute.choices and value not in attribute.choices:
        raise InferenceError(f"attribute {name!r} of {op} is one of {', '.join(attribute.choices)}", "attributes", name)
    if kind == "float":
        items = [float(i) for i in items]
    if kind == "dtype":
        items = [i if i == attribute.default else _dtype_name(op, name, i) for i in items]  # ONNX's 0: unnamed
    return tuple(items) if plural else items[0]


def _dtype_name(op: str, name: str, value: str | int) -> str:
    found = ONNX_DTYPES.get(value) if isinstance(value, int) else value
    if found not in DTYPES:
        help = did_you_mean(str(value), DTYPES) or f"element types: {', '.join(DTYPES)}"
        raise InferenceError(f"attribute {name!r} of {op} is no element type: {value!r}", "attributes", name, help=help)
    return found
