"""NCCL on a device's stream, through nccl4py's bindings on raw addresses; its ids go through the ranks' meeting."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kgrun.graphs.errors import DeviceFault, DeviceUnavailable, KgrunError
from kgrun.runtime.collectives.layout import Span, fused, operands, whole
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
_ABORT_SECONDS = 5.0
Group = tuple[int, ...]


class Nccl:
    """NCCL's communicators of one process: one a group of ranks. The device's context must be current.

    When a rank ends or stays away, its peers' kernels would wait for it on the device for ever. So whoever waits for
    the device listens to the others meanwhile, and the communicators are aborted before the wait is given up.
    """

    def __init__(self, driver: Driver) -> None:
        try:
            nccl = importlib.import_module("nccl.bindings.nccl")
            number = int(nccl.get_version())
        except Exception as error:  # the bindings raise what their loaders do
            help = "pip install 'kgrun[nccl]' brings nccl4py and NCCL"
            raise DeviceUnavailable(f"NCCL does not start: {error}", code="KG707", help=help) from error
        self._nccl: Any = nccl
        self._driver, self._stream = driver, int(driver.stream)
        self._lock = threading.Lock()
        self._abort: threading.Thread | None = None
        self._closed = False
        self._groups: dict[Group, Any] = {}
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def prepare(self, call: LibraryCall, address: Address) -> Callable[[], None]:
        """A collective ready to be issued and captured; its config is that of `collectives.lowering`.

        The ranks of its group make their communicator here, so all of them must prepare the same, in the same order.
        """
        config, size = call.config, call.config["itemsize"]
        members, node, pair = config["members"], config["node"], call.routine in ("send", "receive")
        world = current_for([*members, config["rank"]], config["rank"], node)
        sources, targets = operands(call, address)
        together = fused(call.routine, sources, targets, size)
        if not pair:
            same = {key: config[key] for key in ("dtype", "counts", "reduction", "root") if key in config}
            world.propose([call.routine, same, together], members, node)
        group = world.everyone if pair else tuple(members)
        comm = self._communicator(world, group)
        if together:
            sources, targets = [whole(sources)], [whole(targets)]
        if call.routine == "barrier":
            token = call.args[0]
            assert token is not None
            sources = [(address(token), size)]
        return self._issue(list(self._operations(call.routine, config, comm, group, sources, targets)), node)

    def _issue(self, operations: Sequence[Callable[[], Any]], node: str) -> Callable[[], None]:
        nccl, several = self._nccl, len(operations) > 1

        def run() -> None:
            if self._abort is not None:
                raise DeviceFault(f"{node!r} cannot run: another rank has ended", code="KG620")
            try:
                if not several:
                    for operation in operations:
                        operation()
                    return
                nccl.group_start()  # together they are one launch, and sends and receives do not wait for each other
                try:
                    for operation in operations:
                        operation()
                except BaseException:
                    with contextlib.suppress(Exception):
                        nccl.group_end()  # or all that this thread calls from now on would belong to the group
                    raise
                nccl.group_end()
            except Exception as error:
                raise DeviceFault(f"NCCL refused {node!r}: {error}", code="KG603") from error

        return run

    def _operations(
        self, routine: str, config: Mapping[str, Any], comm: Any, group: Group,
        sources: Sequence[Span], targets: Sequence[Span],
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
                ((token, _),) = sources
                yield bound(nccl.all_reduce, token, token, 1, _INT32, _REDUCTION["sum"], comm, stream)
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

    def _communicator(self, world: World, group: Group) -> Any:
        if group not in self._groups:
            if not self._groups:
                world.meeting.when_one_ends(self.abort)
                self._watch_waits(world)
            key = world.occasion(f"nccl:{'.'.join(map(str, group))}")
            if world.info.rank == group[0]:
                world.meeting.post(key, bytes(self._nccl.get_unique_id()).hex())
            (found,) = world.meeting.collect(key, group[:1], "starting NCCL")
            rank = group.index(world.info.rank)
            connecting = _Aside(
                # The bindings take ids as writable memory, and no configuration as address 0.
                lambda: self._nccl.comm_init_rank_scalable(len(group), rank, 1, bytearray.fromhex(found), 0)
            )
            world.wait(connecting, group, "the start of NCCL", 0)
            if connecting.error is not None:
                text = f"NCCL does not connect {list(group)}: {connecting.error}"
                raise DeviceFault(text, code="KG603") from connecting.error
            self._groups[group] = connecting.result
        return self._groups[group]

    def _watch_waits(self, world: World) -> None:
        turns = itertools.count(1)

        def patience(done: Callable[[], bool]) -> None:
            if self._abort is None:
                try:
                    world.wait(_Polled(done), world.everyone, "a wait for the GPU", next(turns))
                except KgrunError:
                    self.abort()
                    raise

        if world.info.size > 1:
            self._driver.patience = patience

    def abort(self) -> None:
        """End what the communicators do, from any thread; nothing can be issued afterwards.

        Returns at once: NCCL itself waits until captured graphs that hold its calls are gone.
        """
        with self._lock:
            if self._abort is None and not self._closed:
                self._abort = threading.Thread(target=self._abort_all, daemon=True, name="kgrun-nccl-abort")
                self._abort.start()

    def _abort_all(self) -> None:
        for comm in self._groups.values():
            with contextlib.suppress(Exception):
                self._nccl.comm_abort(comm)

    def close(self, lost: bool) -> None:
        """Destroy the communicators, unless the context is gone or they were aborted."""
        with self._lock:
            closed, self._closed = self._closed, True
        if self._abort is not None:
            self._abort.join(_ABORT_SECONDS)
        elif not lost and not closed:
            for comm in self._groups.values():
                self._nccl.comm_destroy(comm)


class _Polled:
    """What the device does, as what may be waited for."""

    def __init__(self, done: Callable[[], bool]) -> None:
        self.done = done


class _Aside:
    """A call in a thread of its own, with the same context: a rank that never comes must not hold this one for ever."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: Exception | None = None
        adopt = same_context()

        def run() -> None:
            try:
                adopt()
                self.result = call()
            except Exception as error:
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True, name="kgrun-nccl-start")
        self._thread.start()

    def done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()


def same_context() -> Callable[[], object]:
    """What makes the calling thread's context that of the thread that calls the result."""
    driver = importlib.import_module("cuda.bindings.driver")
    _, context = driver.cuCtxGetCurrent()
    return lambda: driver.cuCtxSetCurrent(context)
