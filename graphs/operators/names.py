"""Names of operators that binding and planning treat by themselves; importing it loads no schema."""

COMMUNICATING = frozenset(
    {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AllToAll", "Send", "Recv", "Barrier"}
)
COLLECTIVES = COMMUNICATING | {"Shard"}
