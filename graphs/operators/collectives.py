"""Collectives: what ranks compute together. Roots and peers are ranks of the whole job, as the dimension `rank`."""

from __future__ import annotations

from kgrun.graphs.dtypes import DTYPES, WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.names import COLLECTIVES

FAMILY = "collectives"
REDUCTIONS = ("sum", "prod", "min", "max", "avg")
# What NCCL reduces; other types are only moved.
REDUCED = WIDE_FLOATS | {"int8", "uint8", "int32", "uint32", "int64", "uint64"}
NOBODY = -1
_MANY = 1 << 30

# Filled in while binding: the group's ranks in order, and the rank that the graph is bound for.
_PLACE = {"members": Attribute("ints", ()), "rank": Attribute("int", 0)}
_REDUCTION = {"reduction": Attribute("string", "sum", choices=REDUCTIONS)}
_ROOT = {"root": Attribute("int", 0)}
_PEER = {"peer": Attribute("int", NOBODY)}


def members_of(call: OpCall) -> tuple[int, ...]:
    """The ranks that take part, in order; one where nothing tells of more."""
    return tuple(call.attributes["members"]) or (call.attributes["rank"],)


def _check(call: OpCall) -> None:
    members, rank = members_of(call), call.attributes["rank"]
    if len(set(members)) != len(members) or min(members) < 0:
        call.fail(f"{call.op}: {list(members)} is no group of ranks", "collective", "group")
    if rank not in members:
        call.fail(f"rank {rank} is not in the group {list(members)} of {call.op}", "collective", "group")
    root = call.attributes.get("root")
    if root is not None and root not in members:
        call.fail(f"the root, rank {root}, is not in the group {list(members)}", "collective", "root")
    reduction = call.attributes.get("reduction")
    for index in range(len(call.inputs)):
        dtype = call.input(index).dtype
        if dtype != call.input(0).dtype:
            call.fail(f"{call.op} takes tensors of one dtype, got {call.input(0).dtype} and {dtype}", "inputs", index)
    if reduction == "avg" and call.inputs and call.input(0).dtype not in WIDE_FLOATS:
        call.fail(f"{call.op} averages floats, not {call.input(0).dtype}", "attributes", "reduction")
    if call.op not in ("Recv", "Send", "Barrier") and call.output_count != len(call.inputs):
        call.fail(f"{call.op} of {len(call.inputs)} tensors has as many results, not {call.output_count}", "outputs")


def _same(call: OpCall) -> list[TensorType]:
    _check(call)
    return [TensorType(kind.dtype, kind.shape) for kind in map(call.input, range(len(call.inputs)))]


def _rows(call: OpCall, index: int) -> tuple[int, ...]:
    shape = call.input(index).shape
    if not shape:
        call.fail(f"{call.op} works along axis 0, and input {index} is a scalar", "inputs", index)
    return shape


def _gathered(call: OpCall) -> list[TensorType]:
    _check(call)
    count = len(members_of(call))
    shapes = [_rows(call, index) for index in range(len(call.inputs))]
    return [TensorType(call.input(0).dtype, (shape[0] * count, *shape[1:])) for shape in shapes]


def _divided(call: OpCall, index: int) -> tuple[int, ...]:
    shape, count = _rows(call, index), len(members_of(call))
    if shape[0] % count:
        call.fail(f"{call.op}: {shape[0]} rows are not divisible among {count} ranks", "inputs", index)
    return (shape[0] // count, *shape[1:])


def _scattered(call: OpCall) -> list[TensorType]:
    _check(call)
    return [TensorType(call.input(i).dtype, _divided(call, i)) for i in range(len(call.inputs))]


def _exchanged(call: OpCall) -> list[TensorType]:
    for index in range(len(call.inputs)):
        _divided(call, index)
    return _same(call)


def _nothing(call: OpCall) -> list[TensorType]:
    _check(call)
    return []


def _received(call: OpCall) -> list[TensorType]:
    _check(call)
    dtype, shape = call.attributes.get("dtype"), call.attributes.get("shape")
    if dtype is None or shape is None:
        call.fail("Recv needs the dtype and shape of what comes", "outputs", 0, help="declare its output in `tensors`")
    return [TensorType(dtype, tuple(shape))]


def _adds(call: OpCall) -> int:
    return sum(call.input(i).size for i in range(len(call.inputs))) * (len(members_of(call)) - 1)


def _schema(name: str, infer: object, *attributes: dict[str, Attribute], **more: object) -> OpSchema:
    settings: dict[str, object] = {"inputs": (1, _MANY), "outputs": (1, _MANY), "dtypes": frozenset(DTYPES)} | more
    named = {key: value for each in (_PLACE, *attributes) for key, value in each.items()}
    return OpSchema(name, FAMILY, infer=infer, attributes=named, domain="kgrun", **settings)  # type: ignore[arg-type]


_TYPED = {"dtype": Attribute("dtype"), "shape": Attribute("ints")}
_SCHEMAS = (
    _schema("AllReduce", _same, _REDUCTION, dtypes=REDUCED, flops=_adds),
    _schema("AllGather", _gathered),
    _schema("ReduceScatter", _scattered, _REDUCTION, dtypes=REDUCED, flops=_adds),
    _schema("Broadcast", _same, _ROOT),
    _schema("Reduce", _same, _REDUCTION, _ROOT, dtypes=REDUCED, flops=_adds),
    _schema("AllToAll", _exchanged),
    _schema("Send", _nothing, _PEER, inputs=(1, 1), outputs=(0, 0)),
    _schema("Recv", _received, _PEER, _TYPED, inputs=(0, 0), outputs=(1, 1)),
    _schema("Barrier", _nothing, inputs=(0, 0), outputs=(0, 0)),
    _schema("Shard", _scattered),  # this rank's rows of a tensor that every rank has: moves nothing between them
)
assert {schema.name for schema in _SCHEMAS} == COLLECTIVES
register(*_SCHEMAS)
