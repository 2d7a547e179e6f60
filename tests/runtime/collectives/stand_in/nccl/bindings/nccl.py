"""NCCL between processes whose GPUs are stand-ins: what is issued runs in order on the stream's thread, over TCP.

Numbers and semantics are those of nccl.h. A rank waits for its peers as NCCL's kernels do: on the stream, not in the
call. Ranks that disagree on a call end each other's connections. A send ends when its receiver has taken the data.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
import socket
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.runtime.devices.fake_nccl import check_arguments

stream = importlib.import_module("sitecustomize").stream  # under the name by which Python has loaded it already

Array = np.ndarray[Any, Any]
Op = tuple[str, dict[str, int], bytes]
_KINDS = ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ml_dtypes.bfloat16)  # ncclDataType_t
_REDUCE: tuple[Callable[..., Any], ...] = (np.sum, np.prod, np.max, np.min, np.mean)  # ncclRedOp_t
_ID_BYTES = 128
_depth, _group = 0, list[tuple["Comm", Op, int]]()


class NCCLError(Exception):
    """What NCCL refuses."""


class UniqueId:
    """Where the ranks of one communicator meet: a port."""

    def __init__(self, port: int) -> None:
        self._bytes = struct.pack("<I", port).ljust(_ID_BYTES, b"\0")

    def __bytes__(self) -> bytes:
        return self._bytes


class Comm:
    """A connection to where the ranks meet."""

    def __init__(self, connection: socket.socket, ranks: int) -> None:
        self.socket, self.ranks = connection, ranks


def get_version() -> int:
    """2.99.0."""
    return 29_900


def get_unique_id() -> UniqueId:
    """Open a place to meet at, in this process."""
    server = socket.create_server(("127.0.0.1", 0))
    hub = _Hub()

    def accept() -> None:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=hub.serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return UniqueId(server.getsockname()[1])


def comm_init_rank_scalable(*arguments: Any) -> Comm:
    """Meet the others; returns when all are there."""
    check_arguments("comm_init_rank_scalable", arguments, Comm)
    ranks, rank, _, ids, _ = arguments
    connection = socket.create_connection(("127.0.0.1", struct.unpack_from("<I", ids)[0]))
    _put(connection, (rank, ranks))
    if _get(connection) != "welcome":
        raise NCCLError("RemoteError (6): a rank has gone")
    return Comm(connection, ranks)


def comm_abort(comm: Comm) -> None:
    """What waits on the stream ends."""
    check_arguments("comm_abort", (comm,), Comm)
    with contextlib.suppress(OSError):
        comm.socket.shutdown(socket.SHUT_RDWR)


def comm_destroy(comm: Comm) -> None:
    """Leave, once the stream is idle."""
    check_arguments("comm_destroy", (comm,), Comm)
    stream().join()
    comm.socket.close()


def group_start() -> None:
    """From here on calls are kept."""
    global _depth
    _depth += 1


def group_end() -> None:
    """Issue what was kept, as one."""
    global _depth
    if _depth == 0:
        raise NCCLError("InvalidUsage (5): no group")
    _depth -= 1
    if _depth == 0 and _group:
        calls, _group[:] = list(_group), []
        stream().put(lambda: _run(calls))


def _issue(name: str, source: int, target: int, params: dict[str, int], comm: Comm) -> None:
    _group.append((comm, (name, params, struct.pack("<Q", source)), target))
    if _depth == 0:
        calls, _group[:] = list(_group), []
        stream().put(lambda: _run(calls))


def _call(name: str, *places: str) -> Callable[..., None]:
    """A function of the bindings: addresses first, then numbers, the communicator, the stream."""

    def call(*arguments: Any) -> None:
        check_arguments(name, arguments, Comm)
        *numbers, comm, _ = arguments
        addresses, params = numbers[: len(places)], numbers[len(places) :]
        by_place = dict(zip(places, addresses, strict=True))
        names = {"count": params[0], "kind": params[1]} | {f"p{i}": value for i, value in enumerate(params[2:])}
        _issue(name, by_place.get("source", 0), by_place.get("target", 0), names, comm)

    return call


all_reduce = _call("all_reduce", "source", "target")
reduce = _call("reduce", "source", "target")
reduce_scatter = _call("reduce_scatter", "source", "target")
all_gather = _call("all_gather", "source", "target")
broadcast = _call("broadcast", "source", "target")
send = _call("send", "source")
recv = _call("recv", "target")


def _run(calls: list[tuple[Comm, Op, int]]) -> None:
    """On the stream's thread: give what is read, take what is written. Of a connection that has ended: nothing."""
    comm, ops = calls[0][0], []
    for _, (name, params, place), _ in calls:
        (source,) = struct.unpack("<Q", place)
        nbytes = params["count"] * np.dtype(_KINDS[params["kind"]]).itemsize
        nbytes *= comm.ranks if name == "reduce_scatter" else 1
        ops.append((name, params, stream().view(source, nbytes).tobytes() if source else b""))
    try:
        _put(comm.socket, ops)
        results = _get(comm.socket)
    except (OSError, EOFError):
        return
    for (_, _, target), result in zip(calls, results, strict=True):
        if result is not None:
            stream().view(target, len(result))[:] = np.frombuffer(result, np.uint8)


class _Hub:
    """What the ranks of one communicator do together."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._here: dict[int, socket.socket] = {}
        self._turns: dict[int, int] = defaultdict(int)
        self._rounds: dict[int, dict[int, Op]] = defaultdict(dict)
        self._results: dict[int, list[bytes | None]] = {}
        self._mail: dict[tuple[int, int], deque[list[Any]]] = defaultdict(deque)

    def serve(self, connection: socket.socket) -> None:
        """One rank, until it goes."""
        with contextlib.suppress(OSError, EOFError), connection:
            rank, ranks = _get(connection)
            with self._changed:
                self._here[rank] = connection
                self._changed.notify_all()
                self._changed.wait_for(lambda: len(self._here) == ranks)
            _put(connection, "welcome")
            while True:
                _put(connection, self._together(rank, ranks, _get(connection)))

    def _together(self, rank: int, ranks: int, ops: list[Op]) -> list[bytes | None]:
        sent = []
        with self._changed:
            for name, params, data in ops:
                if name == "send":
                    letter = [data, False]
                    self._mail[rank, params["p0"]].append(letter)
                    sent.append(letter)
            self._changed.notify_all()
            results = [self._one(rank, ranks, op) for op in ops]
            self._changed.wait_for(lambda: all(taken for _, taken in sent))
        return results

    def _one(self, rank: int, ranks: int, op: Op) -> bytes | None:
        name, params, _ = op
        if name == "send":
            return None
        if name == "recv":
            box = self._mail[params["p0"], rank]
            self._changed.wait_for(lambda: bool(box))
            letter = box.popleft()
            letter[1] = True
            self._changed.notify_all()
            assert len(letter[0]) == params["count"] * np.dtype(_KINDS[params["kind"]]).itemsize
            found: bytes = letter[0]
            return found
        turn = self._turns[rank]
        self._turns[rank] += 1
        self._rounds[turn][rank] = op
        if len(self._rounds[turn]) == ranks:
            self._results[turn] = _computed([self._rounds[turn][r] for r in range(ranks)])
            self._changed.notify_all()
        self._changed.wait_for(lambda: turn in self._results)
        return self._results[turn][rank]


def _computed(ops: list[Op]) -> list[bytes | None]:
    name, params, _ = ops[0]
    if any(op[:2] != ops[0][:2] for op in ops):
        raise OSError(f"the ranks disagree: {[op[:2] for op in ops]}")
    ranks, datas = len(ops), [data for _, _, data in ops]
    match name:
        case "all_gather":
            return [b"".join(datas)] * ranks
        case "broadcast":
            return [datas[params["p0"]]] * ranks
    kind = np.dtype(_KINDS[params["kind"]])
    wide = np.int64 if kind.kind in "iu" else np.float64
    stacked = np.stack([np.frombuffer(data, kind).astype(wide) for data in datas])
    whole = np.asarray(_REDUCE[params["p0"]](stacked, axis=0)).astype(kind).tobytes()
    match name:
        case "all_reduce":
            return [whole] * ranks
        case "reduce":
            return [whole if rank == params["p1"] else None for rank in range(ranks)]
        case "reduce_scatter":
            part = len(whole) // ranks
            return [whole[rank * part : (rank + 1) * part] for rank in range(ranks)]
    raise AssertionError(name)


def _put(connection: socket.socket, value: object) -> None:
    data = pickle.dumps(value)
    connection.sendall(struct.pack("<Q", len(data)) + data)


def _get(connection: socket.socket) -> Any:
    (size,) = struct.unpack("<Q", _read(connection, 8))
    return pickle.loads(_read(connection, size))


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        got = connection.recv(size - len(data))
        if not got:
            raise EOFError
        data += got
    return bytes(data)
