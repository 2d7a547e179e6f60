"""MPI as the engine between CPU ranks, through mpi4py; every call is non-blocking, so that a wait can be given up."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kgrun.graphs.errors import DeviceFault, DeviceUnavailable

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_HELP = "pip install 'kgrun[mpi]' brings mpi4py and MPICH"


def missing() -> str | None:
    """Why mpi4py cannot be used, None where it is installed; starts nothing."""
    return None if importlib.util.find_spec("mpi4py") is not None else "mpi4py is not installed"


def start() -> Any:
    """`mpi4py.MPI`, initialised; DeviceUnavailable KG707 where there is none.

    It is not finalised at exit but by `finish`: a rank whose peers are gone would wait in there for ever.
    """
    why = missing()
    if why is not None:
        raise DeviceUnavailable(f"ranks on the CPU need MPI: {why}", code="KG707", help=_HELP)
    try:
        mpi4py = importlib.import_module("mpi4py")
        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        mpi = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise DeviceUnavailable(f"MPI does not start: {error}", code="KG707", help=_HELP) from None
    if not mpi.Is_initialized():
        mpi.Init_thread()
    return mpi


def finish(mpi: Any) -> None:
    """Finalise; every rank must come here."""
    if not mpi.Is_finalized():
        mpi.Finalize()


class MpiRequest:
    """An MPI request; `expected` bytes must have come where that is known."""

    def __init__(self, mpi: Any, request: Any, keep: object, expected: int | None = None) -> None:
        self._mpi, self._request, self._expected = mpi, request, expected
        self._keep = keep  # MPI reads and writes these arrays until the request has ended
        self._status = mpi.Status() if expected is not None else None

    def done(self) -> bool:
        """Whether it has ended. DeviceFault KG622 where another number of bytes came."""
        try:
            ended = bool(self._request.Test(self._status))
        except self._mpi.Exception as error:
            raise DeviceFault(f"MPI refused: {error}", code="KG622") from None
        if ended and self._status is not None:
            got = self._status.Get_count(self._mpi.BYTE)
            if got != self._expected:
                text = f"{got:,} bytes came where {self._expected:,} were awaited: the ranks disagree on a shape"
                raise DeviceFault(text, code="KG622")
        return ended


class MpiCommunicator:
    """A group of ranks of `MPI.COMM_WORLD`, by their numbers there. All members must make it, in the same order."""

    def __init__(self, mpi: Any, members: Sequence[int]) -> None:
        self._mpi = mpi
        world = mpi.COMM_WORLD
        group = world.Get_group().Incl(list(members))
        self._comm = world.Create_group(group)
        self._comm.Set_errhandler(mpi.ERRORS_RETURN)
        self._ops = {"sum": mpi.SUM, "avg": mpi.SUM, "prod": mpi.PROD, "min": mpi.MIN, "max": mpi.MAX}

    def all_reduce(self, source: Array | None, target: Array, reduction: str) -> MpiRequest:
        """Every rank gets the reduction of all sources."""
        given = self._mpi.IN_PLACE if source is None else source
        return self._request(self._comm.Iallreduce(given, target, self._ops[reduction]), source, target)

    def reduce(self, source: Array | None, target: Array, reduction: str, root: int) -> MpiRequest:
        """Rank `root` gets the reduction; the target of the others is left alone."""
        here = self._comm.Get_rank() == root
        given = target if source is None else source
        if source is None and here:
            given = self._mpi.IN_PLACE
        request = self._comm.Ireduce(given, target if here else None, self._ops[reduction], root)
        return self._request(request, source, target)

    def reduce_scatter(self, source: Array, target: Array, reduction: str) -> MpiRequest:
        """Each rank gets its part of the reduction."""
        return self._request(self._comm.Ireduce_scatter_block(source, target, self._ops[reduction]), source, target)

    def all_gather(self, source: Array, target: Array) -> MpiRequest:
        """Every rank gets all sources, one after the other."""
        byte = self._mpi.BYTE
        return self._request(self._comm.Iallgather([source, byte], [target, byte]), source, target)

    def all_to_all(self, source: Array | None, target: Array) -> MpiRequest:
        """Part j of rank i becomes part i of rank j."""
        byte = self._mpi.BYTE
        given = self._mpi.IN_PLACE if source is None else [source, byte]
        return self._request(self._comm.Ialltoall(given, [target, byte]), source, target)

    def broadcast(self, data: Array, root: int) -> MpiRequest:
        """Every rank gets what rank `root` has."""
        return self._request(self._comm.Ibcast([data, self._mpi.BYTE], root), data)

    def send(self, source: Array, peer: int) -> MpiRequest:
        """To `peer`."""
        return self._request(self._comm.Isend([source, self._mpi.BYTE], peer), source)

    def receive(self, target: Array, peer: int) -> MpiRequest:
        """From `peer`."""
        request = self._comm.Irecv([target, self._mpi.BYTE], peer)
        return MpiRequest(self._mpi, request, target, target.nbytes)

    def barrier(self) -> MpiRequest:
        """Nobody goes on before all have come."""
        return self._request(self._comm.Ibarrier())

    def _request(self, request: Any, *keep: Array | None) -> MpiRequest:
        return MpiRequest(self._mpi, request, keep)
