"""A session of several graphs: each planned, then all on one device, run in order.

with Graphs([encoder, decoder], device="auto") as graphs:
    reports = graphs.run({"encoder": {"x": x}})
    print(reports["decoder"].outputs["y"])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from kgrun.graphs.bind.dims import dim_names, dims_from_shapes
from kgrun.graphs.errors import DoesNotFit, UsageError, did_you_mean
from kgrun.runtime.checks.skipped import POISON
from kgrun.runtime.devices import device_for
from kgrun.runtime.devices.base import Device
from kgrun.runtime.host_data import Array
from kgrun.runtime.report import RunReport
from kgrun.runtime.session import Session
from kgrun.runtime.several.share import Share

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph


Values = Mapping[str, Mapping[str, Array]]


class Graphs:
    """Several graphs on one device, in the order in which they run. A context manager.

    An output of a graph is an input of a later one where that says `from_graph`: it lies in the same bytes. Parameters
    that both take from the same array of the same file are there once. Static memory stays for the session; the dynamic
    memory of all graphs is one arena, which they use in turn (S50).

    Args:
        graphs: with different names.
        device, settings: as `Session` has them; the same for all.
        dims: values of dimensions, for each graph that knows the name.
        values: arrays of inputs by graph and name.
        memory_limit: most bytes of all graphs together.

    Attributes:
        sessions: by graph's name, those released left out.
        arena_bytes: bytes of the common dynamic memory.

    Raises:
        KgrunError: any of its kinds; nothing stays allocated.
    """

    def __init__(
        self,
        graphs: Sequence[KernelGraph],
        *,
        device: str | Device = "auto",
        dims: Mapping[str, int] | None = None,
        values: Values | None = None,
        memory_limit: int | None = None,
        precision: Any = "float32",
        **settings: Any,
    ) -> None:
        _check_names(graphs)
        _check_dims(graphs, dims or {})
        self.sessions: dict[str, Session] = {}
        self._shares: dict[str, Share] = {}
        with ExitStack() as undo:
            self.device, self.fallback_reason = device_for(device, undo, precision=precision)
            for graph in graphs:
                self._plan(undo, graph, dims or {}, (values or {}).get(graph.name, {}), settings)
            plans = {name: session.planned_memory for name, session in self.sessions.items()}
            self.arena_bytes = max((plan.dynamic_bytes for plan in plans.values()), default=0)
            self.static_bytes = sum(plan.static_bytes for plan in plans.values())
            _check_limit(memory_limit, self.static_bytes, self.arena_bytes)
            if self.arena_bytes:
                arena = self.device.allocate(self.arena_bytes)
                self.device.fill(arena, POISON, self.arena_bytes)
                # Before the sessions in the stack of what is undone: freed after them.
                for share in self._shares.values():
                    share.arena = arena
                self._arena: int | None = arena
                undo.callback(self._free_arena)
            else:
                self._arena = None
            for session in self.sessions.values():
                session.start()
            undo.callback(self._close_sessions)
            self._undo = undo.pop_all()

    def _plan(
        self,
        undo: ExitStack,
        graph: KernelGraph,
        dims: Mapping[str, int],
        values: Mapping[str, Array],
        settings: Mapping[str, Any],
    ) -> None:
        share = Share(graph.name, dict(self.sessions), frozenset(values))
        resolved = share.resolved(graph)
        names = dim_names(resolved)
        told = {k: v for k, v in dims_from_shapes(resolved, share.shapes()).items() if k in names}
        own = {**told, **{name: value for name, value in dims.items() if name in names}}
        session = Session(resolved, device=self.device, dims=own, values=values, share=share, **settings)
        undo.callback(session.close)
        self.sessions[graph.name], self._shares[graph.name] = session, share

    def run(self, inputs: Values | None = None, **loop: Any) -> dict[str, RunReport]:
        """Run every graph, in order; reports by name.

        Args:
            inputs: arrays by graph and name.
            loop: arguments of `Session.run`. With several iterations a graph runs all of its own before the next one.

        Raises:
            UsageError: KG259 for a graph that is not there, KG213 for an array of what lies in another graph.
            KgrunError: as `Session.run`.
        """
        given = inputs or {}
        for name in given:
            if name not in self.sessions:
                raise UsageError(f"there is no graph {name!r}", code="KG259", help=did_you_mean(name, self.sessions))
            self._shares[name].check_given(given[name])
        return {name: session.run(given.get(name), **loop) for name, session in self.sessions.items()}

    def release(self, name: str) -> None:
        """Free what graph `name` holds: static memory, code, captured graph, plan (S147).

        Raises:
            UsageError: KG259 for a graph that is not there, KG218 for one whose bytes a later graph uses.
        """
        if name not in self.sessions:
            raise UsageError(f"there is no graph {name!r}", code="KG259", help=did_you_mean(name, self.sessions))
        for other, share in self._shares.items():
            if other in self.sessions and any(graph == name for graph, _ in share.sources.values()):
                raise UsageError(
                    f"graph {other!r} uses bytes of graph {name!r}", code="KG218", help=f"release {other!r} before"
                )
        self.sessions.pop(name).close()
        del self._shares[name]
        for share in self._shares.values():
            share.before.pop(name, None)
        if not self.sessions:
            self._free_arena()

    @property
    def peak_bytes(self) -> int:
        """Static bytes of the graphs that are there, and the arena."""
        static = sum(session.plan.static_bytes for session in self.sessions.values())
        return static + (self.arena_bytes if self._arena is not None else 0)

    def _free_arena(self) -> None:
        if self._arena is not None:
            self.device.free(self._arena)
            self._arena = None

    def _close_sessions(self) -> None:
        for session in reversed(self.sessions.values()):
            session.close()

    def close(self) -> None:
        """Free memory and release the device; may be called twice."""
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_names(graphs: Sequence[KernelGraph]) -> None:
    seen: set[str] = set()
    for graph in graphs:
        if graph.name in seen:
            raise UsageError(
                f"two graphs are called {graph.name!r}",
                code="KG217",
                where=graph.place("name"),
                help="`name` tells graphs of one session apart",
            )
        seen.add(graph.name)


def _check_dims(graphs: Sequence[KernelGraph], dims: Mapping[str, int]) -> None:
    known = {name for graph in graphs for name in dim_names(graph)}
    for name in dims:
        if name not in known:
            help = did_you_mean(name, known) or f"dimensions: {', '.join(sorted(known)) or 'none'}"
            raise UsageError(f"no graph has a dimension {name!r}", code="KG221", help=help)


def _check_limit(limit: int | None, static: int, arena: int) -> None:
    if limit is not None and static + arena > limit:
        raise DoesNotFit(
            f"the graphs take {static + arena:,} bytes together, {static:,} static and {arena:,} dynamic, "
            f"beyond the limit of {limit:,}",
            code="KG401",
            help="raise --memory-limit, or release graphs that are done",
        )
