"""Collectives of the CPU device: a lowered call over numpy views, waited for with the world's patience."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.data import numpy_dtype
from kgrun.runtime.collectives.alone import copies, is_alone
from kgrun.runtime.collectives.communicator import Communicator, Request
from kgrun.runtime.collectives.layout import fused, operands, whole
from kgrun.runtime.collectives.world import World, current_for
from kgrun.runtime.program import LibraryCall

if TYPE_CHECKING:
    from kgrun.runtime.devices.base import Address

Array = np.ndarray[Any, Any]
Spans = Sequence[tuple[int, int]]
_HALVES = ("float16", "bfloat16")


def prepare(call: LibraryCall, address: Address) -> Callable[[], None]:
    """The call, ready to run; its first run sees that all ranks do the same. A group of one needs no engine.

    Raises:
        UsageError: KG279, the graph was bound for another job.
    """
    if is_alone(call):
        return copies(call, address, ctypes.memmove)
    config = call.config
    members, node, size = config["members"], config["node"], config["itemsize"]
    world = current_for([*members, config["rank"]], config["rank"], node)
    sources, targets = operands(call, address)
    together = fused(call.routine, sources, targets, size)
    pair = call.routine in ("send", "receive")
    if not pair:  # of a pair each side has its own sizes: they are compared when the bytes come
        same = {key: config[key] for key in ("dtype", "counts", "reduction", "root") if key in config}
        world.propose([call.routine, same, together], members, node)
    engine = world.communicator(world.everyone if pair else members)
    if together:
        sources, targets = [whole(sources)], [whole(targets)]
    return _Calls(world, engine, call.routine, config, sources, targets).run


def _view(span: tuple[int, int], dtype: Any = np.uint8) -> Array:
    address, nbytes = span
    if not nbytes:
        return np.empty(0, dtype)
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.ctypeslib.as_array(memory).view(dtype)


class _Calls:
    """One node's operations; each run starts all of them, then waits."""

    def __init__(
        self,
        world: World,
        engine: Communicator,
        routine: str,
        config: Mapping[str, Any],
        sources: Spans,
        targets: Spans,
    ) -> None:
        self._world, self._config = world, config
        self._members, self._node, self._turn = config["members"], config["node"], 0
        self._sending: list[Request] = []
        start = getattr(self, f"_{routine}")
        pairs: Sequence[tuple[Any, Any]]
        if routine == "barrier":
            pairs = [(None, None)]
        elif not targets:
            pairs = [(span, None) for span in sources]
        elif not sources:
            pairs = [(None, span) for span in targets]
        else:
            pairs = [pair for pair in zip(sources, targets, strict=True) if pair[0][1] or pair[1][1]]
        self._steps = [start(engine, source, target) for source, target in pairs]

    def run(self) -> None:
        """Do it once."""
        self._world.settle()
        self._turn += 1
        started = [step() for step in self._steps]
        for request, after in started:
            if request is not None:
                self._world.wait(request, self._members, self._node, self._turn)
            if after is not None:
                after()

    def _root(self) -> int:
        return int(self._members.index(self._config["root"]))

    def _typed(self, source: tuple[int, int], target: tuple[int, int]) -> tuple[Array | None, Array, Array, Any]:
        """Source (None where it is the target), what the engine writes to, the target, and what loads a source."""
        dtype = numpy_dtype(self._config["dtype"])
        given, result = _view(source, dtype), _view(target, dtype)
        if self._config["dtype"] not in _HALVES:
            return (None if source == target else given), result, result, None
        # MPI has no halves: they are reduced in float32 and rounded once.
        wide, sums = np.empty(given.size, np.float32), np.empty(result.size, np.float32)
        return wide, sums, result, lambda: np.copyto(wide, given, casting="unsafe")

    def _after(self, sums: Array, result: Array) -> Callable[[], None] | None:
        count = len(self._members)
        average = self._config.get("reduction") == "avg"
        if sums is result and not average:
            return None

        def finish() -> None:
            if average:
                np.divide(sums, count, out=sums)
            if sums is not result:
                np.copyto(result, sums, casting="unsafe")

        return finish

    def _reducing(self, source: Any, target: Any, begin: Callable[[Array | None, Array], Request]) -> Any:
        given, sums, result, load = self._typed(source, target)
        after = self._after(sums, result)

        def step() -> Any:
            if load is not None:
                load()
            return begin(given, sums), after

        return step

    def _all_reduce(self, engine: Communicator, source: Any, target: Any) -> Any:
        reduction = self._config["reduction"]
        return self._reducing(source, target, lambda given, sums: engine.all_reduce(given, sums, reduction))

    def _reduce(self, engine: Communicator, source: Any, target: Any) -> Any:
        reduction, root = self._config["reduction"], self._root()
        return self._reducing(source, target, lambda given, sums: engine.reduce(given, sums, reduction, root))

    def _reduce_scatter(self, engine: Communicator, source: Any, target: Any) -> Any:
        reduction = self._config["reduction"]

        def begin(given: Array | None, sums: Array) -> Request:
            assert given is not None, "what is scattered is larger than its parts"
            return engine.reduce_scatter(given, sums, reduction)

        return self._reducing(source, target, begin)

    def _all_gather(self, engine: Communicator, source: Any, target: Any) -> Any:
        given, result = _view(source), _view(target)
        return lambda: (engine.all_gather(given, result), None)

    def _all_to_all(self, engine: Communicator, source: Any, target: Any) -> Any:
        given, result = (None if source == target else _view(source)), _view(target)
        return lambda: (engine.all_to_all(given, result), None)

    def _broadcast(self, engine: Communicator, source: Any, target: Any) -> Any:
        given, result, root = _view(source), _view(target), self._root()
        copies = self._config["rank"] == self._config["root"] and source != target

        def step() -> Any:
            if copies:
                np.copyto(result, given)
            return engine.broadcast(result, root), None

        return step

    def _send(self, engine: Communicator, source: Any, _: Any) -> Any:
        given, peer = _view(source), self._config["peer"]

        def step() -> Any:
            # What is sent leaves in a copy, so that ranks that send to each other need not wait for each other.
            self._sending = [request for request in self._sending if not request.done()]
            self._sending.append(engine.send(given.copy(), peer))
            return None, None

        return step

    def _receive(self, engine: Communicator, _: Any, target: Any) -> Any:
        result, peer = _view(target), self._config["peer"]
        self._members = [peer]
        return lambda: (engine.receive(result, peer), None)

    def _barrier(self, engine: Communicator, source: Any, target: Any) -> Any:
        return lambda: (engine.barrier(), None)
