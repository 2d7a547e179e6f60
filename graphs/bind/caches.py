"""Embedding caches: which tables share an index, and whether every use of them and of their ids can work (S148-S152).

The graph sees a cached table as its cache: the cached rows, and a last row of zeros. The ids of each batch become
indices of cached rows before the run, so they may reach nothing but lookups and updates of tables that are cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kgrun.graphs.bound import BoundCache, BoundGraph, BoundNode, BoundTable
from kgrun.graphs.errors import GraphError, PathPart
from kgrun.graphs.operators.base import TensorType

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph


# Operators whose output 0 holds elements of input 0 and nothing else.
_KEEPING = frozenset(
    {"Cast", "Unique", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "Transpose", "Slice"}
)
# Operators that write to rows which their indices name, and to no other.
_ROW_UPDATES = frozenset({"ScatterND", "ScatterElements", "Scatter"})


def cached_type(graph: KernelGraph, name: str, whole: TensorType) -> TensorType:
    """The type that the graph sees of a table of type `whole`. GraphError KG358 for a tensor that is no such table."""
    spec = graph.tensors[name]
    assert spec.cache is not None
    place = graph.place("tensors", name, "cache")
    if spec.role not in (None, "parameter") or spec.value is not None or spec.alias_of is not None:
        raise GraphError(
            f"{name!r} is no parameter with bytes of its own: it cannot be cached", code="KG358", where=place
        )
    if len(whole.shape) < 2 or whole.size == 0:
        raise GraphError(
            f"{name!r} of shape {list(whole.shape)} is no table: [rows, elements …], none of them 0",
            code="KG358",
            where=place,
        )
    return TensorType(whole.dtype, (min(spec.cache.rows, whole.shape[0]) + 1, *whole.shape[1:]))


def bind_caches(bound: BoundGraph, tables: Mapping[str, TensorType]) -> tuple[BoundCache, ...]:
    """The caches of `tables`, one for each source of ids.

    Raises:
        GraphError: KG358 for a use that cannot work with a cache.
    """
    if not tables:
        return ()
    uses = _Uses(bound, tables)
    source_of: dict[str, str] = {}
    for node, table, ids in uses.lookups:
        source = uses.source(node, ids)
        if source_of.setdefault(table, source) != source:
            text = f"table {table!r} is looked up by {source_of[table]!r} and by {source!r}: its rows have one index"
            raise uses.fault(node, text)
    for name in tables:
        if name not in source_of:
            raise GraphError(
                f"no Gather tells which rows of {name!r} a run needs",
                code="KG358",
                where=bound.source.place("tensors", name, "cache"),
            )
    groups: dict[str, list[str]] = {}
    for name, source in source_of.items():
        groups.setdefault(source, []).append(name)
    uses.check_uncached(groups)
    return tuple(_group(bound, tables, uses, source, names) for source, names in groups.items())


def _group(
    bound: BoundGraph, tables: Mapping[str, TensorType], uses: _Uses, source: str, names: list[str]
) -> BoundCache:
    """The cache of the tables that `source` looks up; all have the same number of cached rows (S152)."""
    rows = {name: bound.tensors[name].type.shape[0] - 1 for name in names}
    first = names[0]
    for name in names[1:]:
        if rows[name] != rows[first] or tables[name].shape[0] != tables[first].shape[0]:
            text = ", ".join(f"{n} {rows[n]:,} of {tables[n].shape[0]:,} rows" for n in (first, name))
            raise GraphError(
                f"{first!r} and {name!r} are looked up by the same ids, but cached differently: {text}",
                code="KG358",
                where=bound.source.place("tensors", name, "cache"),
            )
    if bound.tensors[source].type.dtype not in ("int32", "int64"):
        raise GraphError(
            f"ids {source!r} of a cached table are int32 or int64, not {bound.tensors[source].type.dtype}",
            code="KG358",
            where=bound.source.place("tensors", source),
        )
    uses.check_ids(source, {n for n, base in uses.family.items() if base in names})
    made = []
    for name in names:
        spec = bound.tensors[name].spec
        assert spec is not None
        assert spec.cache is not None
        made.append(BoundTable(name, tables[name].shape, tables[name].dtype, spec.cache.persist, name in uses.updated))
    return BoundCache(source, rows[first], tuple(made))


class _Uses:
    """Every use of the tables.

    Attributes:
        family: names under which a table's rows are known (itself, in-place results) with the table's own name.
        lookups: Gather nodes of tables: (node, table, name of the ids).
        updated: tables that a node writes to.
    """

    def __init__(self, bound: BoundGraph, tables: Iterable[str]) -> None:
        self.bound = bound
        self.family = {name: name for name in tables}
        self.lookups: list[tuple[BoundNode, str, str]] = []
        self.updated: set[str] = set()
        for node in bound.nodes:
            for name in node.read_names():
                if name in self.family:
                    self._use(node, name)
        for name in self.family:
            if bound.tensors[name].is_output:
                raise GraphError(
                    f"{name!r} is a cached table, of which the device holds a part: it cannot be an output",
                    code="KG358",
                    where=bound.source.place("outputs"),
                    help="--save-parameters writes the whole table",
                )

    def _use(self, node: BoundNode, name: str) -> None:
        table = self.family[name]
        results = [output for output, source in node.inplace.items() if source == name]
        if _is_lookup(node) and node.inputs[0] == name and not results:
            ids = node.inputs[1]
            assert ids is not None
            self.lookups.append((node, table, ids))
        elif results and (node.launch is not None or (node.op in _ROW_UPDATES and node.inputs[0] == name)):
            self.family.update(dict.fromkeys(results, table))
            self.updated.add(table)
        elif node.launch is None:
            text = f"{node.name!r} ({node.op}) reads all of {table!r}, of which the device holds a part"
            allowed = f"Gather along axis 0, in-place {', '.join(sorted(_ROW_UPDATES))}, or a custom kernel"
            raise self.fault(node, text, help=f"what works: {allowed}")

    def source(self, node: BoundNode, ids: str) -> str:
        """The queue item that a lookup's ids come from (S150)."""
        name = self._origin(ids)
        if name not in self.bound.fed:
            producer = self.bound.tensors[name].producer
            made = f"{self.bound.tensors[name].role} {name!r}" if producer is None else f"{self._made(producer)}"
            raise self.fault(
                node,
                f"ids of the lookup {node.name!r} come from {made}, not from a queue: its rows cannot be known ahead",
                "inputs",
                1,
            )
        return name

    def check_uncached(self, groups: Mapping[str, list[str]]) -> None:
        """All parameters that one source looks up are cached, or none (S152)."""
        for node in self.bound.nodes:
            if not _is_lookup(node) or node.inputs[0] in self.family or node.inputs[1] is None:
                continue
            source, table = self._origin(node.inputs[1]), node.inputs[0]
            if source in groups:
                text = f"{table!r} is looked up by {source!r} as cached {groups[source][0]!r} is, but is not cached"
                raise self.fault(node, text, help="a batch's ids become indices of cached rows: cache all or none")

    def check_ids(self, source: str, family: set[str]) -> None:
        """Ids reach nothing but what looks up or updates a table of their cache."""
        for name in self._derived(source):
            if self.bound.tensors[name].is_output:
                raise GraphError(
                    f"{name!r} holds indices of cached rows, not ids: it cannot be an output",
                    code="KG358",
                    where=self.bound.source.place("outputs"),
                )
            for index in self.bound.tensors[name].consumers:
                node = self.bound.nodes[index]
                if not (_keeps(node, name) or family.intersection(node.read_names())):
                    text = f"{node.name!r} ({node.op}) reads {name!r}, which holds indices of cached rows, not ids"
                    raise self.fault(node, text, help="feed the ids a second time, under another name")

    def _derived(self, source: str) -> Iterator[str]:
        found = [source]
        for name in found:
            yield name
            for index in self.bound.tensors[name].consumers:
                node = self.bound.nodes[index]
                if _keeps(node, name) and node.outputs[0] is not None:
                    found.append(node.outputs[0])

    def _origin(self, name: str) -> str:
        while True:
            producer = self.bound.tensors[name].producer
            node = None if producer is None else self.bound.nodes[producer]
            before = None if node is None or node.op not in _KEEPING or node.outputs[0] != name else node.inputs[0]
            if before is None:
                return name
            name = before

    def _made(self, producer: int) -> str:
        node = self.bound.nodes[producer]
        return f"{node.name!r} ({node.op})"

    def fault(self, node: BoundNode, message: str, *path: PathPart, help: str | None = None) -> GraphError:
        return GraphError(
            message, code="KG358", where=self.bound.source.place("nodes", node.position, *path), help=help
        )


def _is_lookup(node: BoundNode) -> bool:
    return node.op == "Gather" and node.call is not None and node.call.attributes.get("axis", 0) == 0


def _keeps(node: BoundNode, name: str) -> bool:
    return node.call is not None and node.op in _KEEPING and node.inputs[0] == name
