"""This process as one rank of a job: its meeting with the others, and the engines that move data between them.

A process is one rank, so there is one world in it at most; `current` finds it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Any

from kgrun.graphs.errors import DeviceFault, KgrunError, UsageError
from kgrun.runtime.collectives import holder, mpi
from kgrun.runtime.collectives.communicator import Communicator, Request
from kgrun.runtime.collectives.meeting import Meeting, Solitude, late
from kgrun.runtime.collectives.ranks import RankInfo
from kgrun.runtime.collectives.store import Store

START_SECONDS = 60.0  # for ranks to come, without --timeout
WAIT_SECONDS = 600.0  # for a collective, without --timeout
_SPIN_NS = 50_000
_ANNOUNCE_S = 0.2
_LONGEST_NAP_S = 0.002
_current: World | None = None


class World:
    """The job as this rank sees it.

    Args:
        limit: seconds that the whole may take; None: a minute for others to come, ten for a collective.

    Attributes:
        info: who this rank is.
        meeting: with the other ranks.
    """

    def __init__(self, info: RankInfo, limit: float | None = None) -> None:
        self.info = info
        self._deadline = None if limit is None else time.monotonic() + limit
        self._mpi: Any = None
        self._store: Store | None = None
        self._communicators: dict[tuple[int, ...], Communicator] = {}
        self._unused: list[tuple[int, ...]] = []
        self._proposed: list[tuple[str, tuple[int, ...], str]] = []
        self._occasions: dict[str, int] = {}
        self.meeting: Meeting | Solitude = Solitude() if info.size == 1 and info.hosted else self._meet()
        self.everyone = tuple(range(info.size))

    def _meet(self) -> Meeting:
        info, address, token = self.info, self.info.store, self.info.token
        if address is None:
            address, token = self._meet_through_mpi()
        elif info.hosted and info.rank == 0:
            self._store = Store(address[0], address[1], token, info.size, listen="")
        return Meeting(info, address, token, lambda: self._patience(START_SECONDS))

    def _meet_through_mpi(self) -> tuple[tuple[str, int], str]:
        """MPI alone knows the other ranks: rank 0 opens the store and tells where."""
        found: tuple[tuple[str, int], str] | None = None
        world = self._started_mpi().COMM_WORLD
        if self.info.rank == 0:
            token = secrets.token_hex(16)
            self._store = Store(socket.gethostname(), 0, token, self.info.size, listen="")
            found = (self._store.address, token)
        address, token = world.bcast(found)
        return (address[0], address[1]), token

    def _started_mpi(self) -> Any:
        if self._mpi is None:
            if self.info.store is not None and self.info.hosted:
                self._in_step("start of MPI", "starting MPI")
            self._mpi = mpi.start()
            size = self._mpi.COMM_WORLD.Get_size()
            if size != self.info.size:
                raise UsageError(
                    f"MPI knows {size} ranks where there are {self.info.size}",
                    code="KG278", help="start ranks on the CPU with `mpirun -n N`, `srun --mpi=pmi2` or `--ranks N`",
                )  # fmt: skip
        return self._mpi

    def _in_step(self, key: str, doing: str) -> None:
        """Go on when all ranks have come here.

        MPI starts and ends with the interpreter locked: where the store lives in rank 0, that one goes on only when all
        have heard of all, for it could not pass their words on from in there.
        """
        limit = self._patience(WAIT_SECONDS)
        self.meeting.gather(key, 0, self.everyone, doing, limit)
        if self.info.hosted:
            self.meeting.post(f"{key}: heard", 0, to=0)
            if self.info.rank == 0:
                self.meeting.collect(f"{key}: heard", self.everyone, doing, limit)

    def _patience(self, usual: float) -> float:
        """Seconds that others may be waited for."""
        return usual if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def greet(self, digest: str, device: str, *, communicates: bool = True) -> None:
        """Meet all ranks, and see that they run the same; and that they have an engine where the graph communicates.

        Raises:
            DeviceFault: KG621 for ranks that run another graph, or run it otherwise.
            TimeoutExpired: KG904 for ranks that did not come.
        """
        missing = self._no_engine(device) if communicates else None
        said = self.meeting.gather(
            "greet", {"digest": digest, "device": device, "missing": missing}, self.everyone, "meeting the other ranks"
        )
        for rank, each in enumerate(said):
            if each["missing"] is not None:
                text = f"rank {rank} cannot take part: {each['missing']}"
                help = "pip install 'kgrun[mpi]' there, or 'kgrun[nccl]' for GPUs"
                raise DeviceFault(text, code="KG623", help=help, details={"rank": rank})
        for key, what in (("digest", "runs another graph, or with other options"), ("device", "has another device")):
            other = odd_one([each[key] for each in said])
            if other is not None:
                text = f"rank {other} {what} than the other ranks"
                raise DeviceFault(text, code="KG621", help="give every rank one command", details={"rank": other})

    def _no_engine(self, device: str) -> str | None:
        if device != "cpu":
            return None if importlib.util.find_spec("nccl") is not None else "nccl4py is not installed"
        return mpi.missing() if self.info.size > 1 else None  # one rank copies

    def propose(self, what: object, members: Sequence[int], node: str) -> None:
        """Tell the members what this rank is about to do; `settle` sees that all do the same."""
        group = tuple(members)
        key = self.occasion(".".join(map(str, group)))
        self.meeting.post(key, [node, what])
        self._proposed.append((key, group, node))

    def occasion(self, what: str) -> str:
        """A key for what the ranks do together now, unlike that of the last time they did it."""
        turn = self._occasions[what] = self._occasions.get(what, 0) + 1
        return f"{what}:{turn}"

    def settle(self) -> None:
        """Wait until the others have said what they are about to do.

        Raises:
            DeviceFault: KG622, a rank does otherwise.
            TimeoutExpired: KG904, one says nothing.
        """
        for key, group, node in self._proposed:
            self._compare(key, group, node)
        self._proposed.clear()
        for group in self._unused:  # connections are made by the first operation, which is nobody's to pay for
            self.wait(self._communicators[group].barrier(), group, "a first barrier", 0)
        self._unused.clear()

    def _compare(self, key: str, group: tuple[int, ...], node: str) -> None:
        said = self.meeting.collect(key, group, f"preparing {node!r}", self._patience(WAIT_SECONDS))
        other = odd_one(said)
        if other is not None:
            rank, mine = group[other], said[group.index(self.info.rank)]
            text = f"rank {rank} disagrees on {node!r}: it has {said[other]}"
            text += "" if rank == self.info.rank else f", and rank {self.info.rank} {mine}"
            raise DeviceFault(text, code="KG622", details={"rank": rank})

    def communicator(self, members: Sequence[int]) -> Communicator:
        """The engine between these ranks on the CPU, made when it is first asked for."""
        group = tuple(members)
        if group not in self._communicators:
            self._communicators[group] = mpi.MpiCommunicator(self._started_mpi(), group)
            self._unused.append(group)
        return self._communicators[group]

    def wait(self, request: Request, members: Sequence[int], node: str, turn: int) -> None:
        """Wait until `request` has ended.

        Raises:
            DeviceFault: KG620, a member ended meanwhile.
            TimeoutExpired: KG904, members that never came.
        """
        started, patience = time.perf_counter_ns(), self._patience(WAIT_SECONDS)
        nap, announced, what = 2e-5, False, [node, turn]
        while not request.done():
            waited = time.perf_counter_ns() - started
            if waited < _SPIN_NS:
                continue
            time.sleep(nap)
            nap = min(nap * 1.5, _LONGEST_NAP_S)
            self.meeting.check(members, f"rank {self.info.rank} waits in {node!r}")
            if not announced and waited > _ANNOUNCE_S * 1e9:
                announced = True
                self.meeting.waits(what)
            if waited > patience * 1e9:
                guilty = self.meeting.elsewhere(members, what) or [r for r in members if r != self.info.rank]
                raise late(guilty, f"rank {self.info.rank} waits in {node!r}", patience)

    def fail(self, error: KgrunError) -> None:
        """Tell the others why this rank ends. What is under way is left as it is."""
        self.meeting.fail(error)
        self._end_store(2.0)

    def finish(self) -> None:
        """End well, together with the others."""
        self._in_step("end", "ending")
        if self._mpi is not None:
            mpi.finish(self._mpi)
        self.meeting.leave()
        holder.release()
        self._end_store(5.0)

    def _end_store(self, patience: float) -> None:
        if self._store is not None:
            with contextlib.suppress(OSError):
                self._store.close(patience)


def odd_one(values: Sequence[object]) -> int | None:
    """The first position whose value is not the most common one (of equally common ones, not the first)."""
    counts = [sum(value == other for other in values) for value in values]
    usual = values[counts.index(max(counts))]
    return next((i for i, value in enumerate(values) if value != usual), None)


def enter(info: RankInfo, limit: float | None = None) -> World:
    """Make this process a rank of a job."""
    global _current
    _current = World(info, limit)
    return _current


def current() -> World | None:
    """The world of this process, None where it is alone."""
    return _current


def current_for(members: Sequence[int], rank: int, node: str) -> World:
    """The world that a graph bound for `rank` of `members` runs in; UsageError KG279 where it is another."""
    world = _current
    size, own = (1, 0) if world is None else (world.info.size, world.info.rank)
    if world is None or max(members) >= size or rank != own:
        raise UsageError(
            f"{node!r} is for rank {rank} of {sorted({*members})}, and this is rank {own} of {size}",
            code="KG279",
            help="start all ranks (`--ranks N`, mpirun), and leave rank and world_size to the launcher",
        )
    return world
