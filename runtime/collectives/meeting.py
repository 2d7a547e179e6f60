"""One rank's side of the store: agree on a value with others, learn who failed, say what it waits for."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kgrun.graphs.errors import DeviceFault, KgrunError, TimeoutExpired
from kgrun.runtime.collectives import holder, store
from kgrun.runtime.collectives.ranks import RankInfo

_LAUNCHER_SECONDS = 2.0


class Meeting:
    """The connection of a rank to the others.

    Args:
        patience: says how many seconds the others may be waited for from now on.

    Raises:
        TimeoutExpired: KG904 where nobody listens at the address.
    """

    def __init__(self, info: RankInfo, address: tuple[str, int], token: str, patience: Callable[[], float]) -> None:
        self.info, self._patience = info, patience
        # A launcher of kgrun's has listened since before there were ranks: if it does not, it is gone.
        limit = patience() if info.hosted else min(patience(), _LAUNCHER_SECONDS)
        self._changed = threading.Condition()
        self._values: dict[str, dict[int, Any]] = {}
        self._waiting: dict[int, list[Any]] = {}
        self._ended: dict[int, store.Message] = {}
        self._alarms: list[Callable[[], None]] = []
        self._closed = False
        found = store.connect(address, limit)
        if found is None:
            text = f"rank {info.rank} waited {limit:.3g} s for rank 0: nobody listens at {address[0]}:{address[1]}"
            raise TimeoutExpired(text, code="KG904", help="start all ranks, or raise --timeout", details={"rank": 0})
        self._socket: socket.socket = found
        hello = {"pid": os.getpid(), "holder": holder.held_by(), "host": socket.gethostname()}
        self._post({"token": token})
        self._post({store.HELLO: hello})
        threading.Thread(target=self._listen, daemon=True, name="kgrun-meeting").start()

    def post(self, key: str, value: Any, to: int | None = None) -> None:
        """Say a value; to every rank, or to rank `to`."""
        with self._changed:
            self._values.setdefault(key, {})[self.info.rank] = value
        self._post({"key": key, "value": value} | ({} if to is None else {"to": to}))

    def gather(self, key: str, value: Any, members: Sequence[int], doing: str, limit: float | None = None) -> list[Any]:
        """The values that the members say under `key`, in their order, once all have.

        Raises:
            DeviceFault: KG620, a member failed or ended.
            TimeoutExpired: KG904, one said nothing in time.
        """
        self.post(key, value)
        return self.collect(key, members, doing, limit)

    def collect(self, key: str, members: Sequence[int], doing: str, limit: float | None = None) -> list[Any]:
        """As `gather`, without saying anything."""
        limit = self._patience() if limit is None else limit
        deadline = time.monotonic() + limit
        with self._changed:
            while True:
                said = self._values.get(key, {})
                missing = [rank for rank in members if rank not in said]
                if not missing:
                    return [said[rank] for rank in members]
                self._raise_trouble(missing, doing)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise late(missing, doing, limit)
                self._changed.wait(left)

    def check(self, members: Sequence[int], doing: str) -> None:
        """DeviceFault KG620 where one of the members failed or ended."""
        if self._ended:
            with self._changed:
                self._raise_trouble(members, doing)

    def waits(self, what: Sequence[Any]) -> None:
        """Say that this rank has been waiting for `what` for a while."""
        self._post({"waits": list(what)})

    def elsewhere(self, members: Sequence[int], what: Sequence[Any]) -> list[int]:
        """The members that do not wait for `what` too."""
        with self._changed:
            return [r for r in members if r != self.info.rank and self._waiting.get(r) != list(what)]

    def when_one_ends(self, call: Callable[[], None]) -> None:
        """Have `call` called, by the thread that hears of it, when another rank fails or ends before its good-bye."""
        with self._changed:
            self._alarms.append(call)

    def fail(self, error: KgrunError) -> None:
        """Tell the others why this rank ends."""
        self._post({store.FAILED: error.to_json()})
        self._end()

    def leave(self) -> None:
        """Say good-bye: this rank has done its part."""
        self._post({store.BYE: 0})
        self._end()

    def _end(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _post(self, message: store.Message) -> None:
        with contextlib.suppress(OSError):  # the listener notices
            self._socket.sendall(json.dumps({"from": self.info.rank, **message}).encode() + b"\n")

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._socket, self._socket.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                with self._changed:
                    self._take(message)
                    self._changed.notify_all()
                    alarms = list(self._alarms) if message["from"] != self.info.rank else []
                if store.FAILED in message or store.GONE in message:
                    for alarm in alarms:
                        alarm()
        with self._changed:
            self._ended.setdefault(-1, {store.GONE: True})
            self._changed.notify_all()

    def _take(self, message: store.Message) -> None:
        rank = message["from"]
        if "key" in message:
            self._values.setdefault(message["key"], {})[rank] = message["value"]
        elif "waits" in message:
            self._waiting[rank] = message["waits"]
        elif store.FAILED in message or store.GONE in message or store.BYE in message:
            self._ended.setdefault(rank, message)

    def _raise_trouble(self, members: Sequence[int], doing: str) -> None:
        if self._closed:
            return
        for rank, message in self._ended.items():
            if rank == self.info.rank or (store.BYE in message and rank not in members):
                continue
            if rank == -1:
                if not any(store.GONE in m or store.FAILED in m for r, m in self._ended.items() if r != -1):
                    raise DeviceFault(
                        f"rank {self.info.rank} lost the other ranks while {doing}: who holds them together has ended",
                        code="KG620", details={"rank": 0},
                    )  # fmt: skip
                continue
            raise ended(rank, message, doing)


class Solitude:
    """The meeting of a rank that is a whole job: it hears what it says itself."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def post(self, key: str, value: Any, to: int | None = None) -> None:
        """As `Meeting.post`."""
        self._values[key] = value

    def gather(self, key: str, value: Any, members: Sequence[int], doing: str, limit: float | None = None) -> list[Any]:
        """As `Meeting.gather`."""
        self.post(key, value)
        return self.collect(key, members, doing, limit)

    def collect(self, key: str, members: Sequence[int], doing: str, limit: float | None = None) -> list[Any]:
        """As `Meeting.collect`."""
        return [self._values[key] for _ in members]

    def check(self, members: Sequence[int], doing: str) -> None:
        """Nobody can have failed."""

    def waits(self, what: Sequence[Any]) -> None:
        """Nobody listens."""

    def elsewhere(self, members: Sequence[int], what: Sequence[Any]) -> list[int]:
        """Nobody is."""
        return []

    def when_one_ends(self, call: Callable[[], None]) -> None:
        """Nobody else does."""

    def fail(self, error: KgrunError) -> None:
        """Nobody has to know."""

    def leave(self) -> None:
        """Nobody has to know."""


def ended(rank: int, message: store.Message, doing: str) -> DeviceFault | TimeoutExpired:
    """The fault of the others when `rank` has ended; whoever else waited in vain says the same as who was first to."""
    cause = message.get(store.FAILED)
    if cause is not None and cause["code"] == "KG904":
        return TimeoutExpired(cause["message"], code="KG904", help=cause.get("help"), details=cause.get("details"))
    if cause is not None and cause.get("details", {}).get("rank") not in (None, rank):  # it was told of another's
        rank = cause["details"]["rank"]
        why = f"rank {rank} failed or did not answer"
    elif cause is not None:
        why = f"rank {rank} failed: {cause['message']} [{cause['code']}]"
    elif store.BYE in message:
        why = f"rank {rank} was done and left"
    else:
        why = f"rank {rank} ended without a word"
    help = "its own message says more; `--json` has it as `cause`"
    return DeviceFault(f"{why}, while {doing}", code="KG620", help=help, details={"rank": rank, "cause": cause})


def late(ranks: Sequence[int], doing: str, limit: float) -> TimeoutExpired:
    """The error of a rank that waited for `ranks` too long."""
    names = ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
    return TimeoutExpired(
        f"{names} did not come within {limit:.3g} s, while {doing}",
        code="KG904",
        help="look what that rank does; `--timeout` sets the time",
        details={"rank": ranks[0] if ranks else None, "ranks": list(ranks)},
    )
