"""NCCL on a device's stream, through nccl4py's bindings on raw addresses; its ids go through the ranks' meeting."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kgrun.graphs.errors import DeviceFault, DeviceUnavailable
from kgrun.runtime.collectives.layout import fused, whole
from kgrun.runtime.collectives.world import World, current_for
from kgrun.runtime.devices.base import Address
from kgrun.runtime.devices.cuda_driver import Driver
from kgrun.runtime.program import LibraryCall

# nccl.h
_DATA_TYPE = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
_REDUCTION = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
_BYTE, _INT32 = _DATA_TYPE["uint8"], _DATA_TYPE["int32"]
_REDUCING = ("all_reduce", "reduce", "reduce_scatter")
Span = tuple[int, int]  # address and bytes


class Nccl:
    """NCCL's communicators of one process: one a group of ranks. The device's context must be current.

    When a rank ends, its peers' kernels would wait for it on the device for ever: the communicators are then aborted,
    by the thread that hears of it.
    """

    def __init__(self, driver: Driver) -> None:
        try:
            nccl = importlib.import_module("nccl.bindings.nccl")
            number = int(nccl.get_version())
        except Exception as error:  # the bindings raise what their loaders do
            help = "pip install 'kgrun[nccl]' brings nccl4py and NCCL"
            raise DeviceUnavailable(f"NCCL does not start: {error}", code="KG707", help=help) from error
        self._nccl: Any = nccl
        self._stream = int(driver.stream)
        self._lock = threading.Lock()
        self._aborted = False
        self._groups: dict[tuple[int, ...], Any] = {}
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def prepare(self, call: LibraryCall, address: Address) -> Callable[[], None]:
        """A collective ready to be issued and captured; its config is that of `collectives.lowering`.

        The ranks of its group make their communicator here, so all of them must prepare the same, in the same order.
        """
        config, size = call.config, call.config["itemsize"]
        members, node, pair = config["members"], config["node"], call.routine in ("send", "receive")
        world = current_for([*members, config["rank"]], config["rank"], node)
        places = [0 if pointer is None else address(pointer) for pointer in call.args]
        count = len(config["counts"])
        sources = [(place, n * size) for place, n in zip(places[:count], config["counts"], strict=False)]
        targets = [(place, n * size) for place, n in zip(places[count:], config["result_counts"], strict=False)]
        together = fused(call.routine, sources, targets, size)
        if not pair:
            same = {key: config[key] for key in ("dtype", "counts", "reduction", "root") if key in config}
            world.propose([call.routine, same, together], members, node)
        group = world.everyone if pair else tuple(members)
        comm = self._communicator(world, group)
        if together:
            sources, targets = [whole(sources)], [whole(targets)]
        operations = list(self._operations(call.routine, config, comm, group, sources, targets, places))
        return self._issue(operations, node)

    def _issue(self, operations: Sequence[Callable[[], Any]], node: str) -> Callable[[], None]:
        nccl, several = self._nccl, len(operations) > 1

        def run() -> None:
            if self._aborted:
                raise DeviceFault(f"{node!r} cannot run: another rank has ended", code="KG620")
            try:
                if several:  # together they are one launch, and sends and receives do not wait for each other
                    nccl.group_start()
                for operation in operations:
                    operation()
                if several:
                    nccl.group_end()
            except Exception as error:
                raise DeviceFault(f"NCCL refused {node!r}: {error}", code="KG603") from error

        return run

    def _operations(
        self, routine: str, config: Mapping[str, Any], comm: Any, group: tuple[int, ...],
        sources: Sequence[Span], targets: Sequence[Span], places: Sequence[int],
    ) -> Any:  # fmt: skip
        """The calls that the routine takes, each without arguments."""
        nccl, stream, size = self._nccl, self._stream, config["itemsize"]
        kind = _DATA_TYPE[config["dtype"]] if routine in _REDUCING else _BYTE
        width = size if routine in _REDUCING else 1
        op = _REDUCTION[config.get("reduction", "sum")]
        root = group.index(config["root"]) if "root" in config else 0
        peer = group.index(config["peer"]) if "peer" in config else 0

        def bound(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
            return lambda: function(*arguments)

        match routine:
            case "barrier":
                yield bound(nccl.all_reduce, places[0], places[0], 1, _INT32, _REDUCTION["sum"], comm, stream)
            case "send":
                for place, nbytes in sources:
                    yield bound(nccl.send, place, nbytes, _BYTE, peer, comm, stream)
            case "receive":
                for place, nbytes in targets:
                    yield bound(nccl.recv, place, nbytes, _BYTE, peer, comm, stream)
            case _:
                for (source, given), (target, made) in zip(sources, targets, strict=True):
                    ends = (source, target)
                    if not given and not made:
                        continue
                    match routine:
                        case "all_reduce":
                            yield bound(nccl.all_reduce, *ends, given // width, kind, op, comm, stream)
                        case "reduce":
                            yield bound(nccl.reduce, *ends, given // width, kind, op, root, comm, stream)
                        case "reduce_scatter":
                            yield bound(nccl.reduce_scatter, *ends, made // width, kind, op, comm, stream)
                        case "all_gather":
                            yield bound(nccl.all_gather, *ends, given, kind, comm, stream)
                        case "broadcast":
                            yield bound(nccl.broadcast, *ends, given, kind, root, comm, stream)
                        case "all_to_all":
                            part = given // len(group)
                            for other in range(len(group)):
                                yield bound(nccl.send, source + other * part, part, kind, other, comm, stream)
                                yield bound(nccl.recv, target + other * part, part, kind, other, comm, stream)
                        case _:
                            raise AssertionError(f"{routine} is no collective")

    def _communicator(self, world: World, group: tuple[int, ...]) -> Any:
        if group not in self._groups:
            if not self._groups:
                world.meeting.when_one_ends(self._abort)
            key = f"nccl:{'.'.join(map(str, group))}"
            if world.info.rank == group[0]:
                world.meeting.post(key, bytes(self._nccl.get_unique_id()).hex())
            (found,) = world.meeting.collect(key, group[:1], "starting NCCL")
            rank = group.index(world.info.rank)
            try:
                comm = self._nccl.comm_init_rank_scalable(len(group), rank, 1, bytearray.fromhex(found), 0)
            except Exception as error:
                raise DeviceFault(f"NCCL does not connect {list(group)}: {error}", code="KG603") from error
            self._groups[group] = comm
        return self._groups[group]

    def _abort(self) -> None:
        with self._lock:
            if self._aborted:
                return
            self._aborted = True
            for comm in self._groups.values():
                self._nccl.comm_abort(comm)

    def close(self, lost: bool) -> None:
        """Destroy the communicators, unless the context is gone or they were aborted."""
        with self._lock:
            if not lost and not self._aborted:
                for comm in self._groups.values():
                    self._nccl.comm_destroy(comm)
            self._aborted = True
            self._groups.clear()
