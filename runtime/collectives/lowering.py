"""What a collective operator becomes: one call of the engine; of a group of one rank too, whatever carries that out."""

from __future__ import annotations

from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.collectives import NOBODY, members_of
from kgrun.runtime.kernels.base import ClearOperand, CopyOperand, LibraryRoutine, Lowered, Operand

ENGINES = ("mpi", "nccl")
_ROUTINES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AllToAll": "all_to_all",
    "Send": "send",
    "Recv": "receive",
    "Barrier": "barrier",
}
_TOKEN_BYTES = 4  # what a barrier reduces where the engine has none


def lowered(call: OpCall, engine: str) -> Lowered:
    """The work of `call` on `engine`, "mpi" or "nccl".

    Operands of a call are its inputs, then its outputs. `config` has the `dtype`, elements of each input (`counts`) and
    output (`result_counts`), `members`, `rank`, and what the routine needs: `reduction`, `root`, `peer`.
    """
    attributes, members = call.attributes, members_of(call)
    inputs = tuple(Operand("input", i) for i in range(len(call.inputs)))
    outputs = tuple(Operand("output", i) for i in range(len(call.outputs)))
    if call.op == "Shard":
        position = members.index(attributes["rank"])
        copies = zip(outputs, call.outputs, strict=True)
        return Lowered(tuple(
            CopyOperand(out, Operand("input", out.index, position * kind.nbytes), kind.nbytes) for out, kind in copies
        ))  # fmt: skip
    if call.op in ("Send", "Recv") and attributes["peer"] in (NOBODY, attributes["rank"]):
        if attributes["peer"] == attributes["rank"]:
            call.fail(f"{call.op} to the rank itself", "collective", "peer")
        return Lowered(tuple(ClearOperand(out, kind.nbytes) for out, kind in zip(outputs, call.outputs, strict=True)))
    token = Operand("workspace", 0)
    dtype = (call.input(0) if call.inputs else call.outputs[0]).dtype if inputs or outputs else "int32"
    config = {
        "dtype": dtype,
        "itemsize": itemsize(dtype),
        "counts": [call.input(i).size for i in range(len(call.inputs))],
        "result_counts": [kind.size for kind in call.outputs],
        **{key: attributes[key] for key in ("reduction", "root", "peer", "rank") if key in attributes},
        "members": list(members),
        "node": call.node,
    }
    operands = (*inputs, *outputs) or (token,)
    routine = LibraryRoutine(engine, _ROUTINES[call.op], config, operands)
    after: tuple[ClearOperand, ...] = ()
    if call.op == "Reduce" and attributes["rank"] != attributes["root"]:  # zero where only the root has the result
        after = tuple(ClearOperand(o, kind.nbytes) for o, kind in zip(outputs, call.outputs, strict=True))
    return Lowered((routine, *after), () if inputs or outputs else (_TOKEN_BYTES,))
