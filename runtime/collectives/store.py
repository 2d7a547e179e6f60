"""Where the ranks of a job meet: a relay of short messages over TCP, beside whatever moves their data.

A message is a line of JSON. What a rank says goes to every rank, or to the one it is meant for; who comes later is told
what was said before. A connection that ends without a good-bye is a rank that ended: so the others learn of it at once,
whatever it died of.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
GONE, FAILED, BYE, HELLO, STATUS = "gone", "failed", "bye", "hello", "status"
_HELLO_SECONDS = 10.0
_LONGEST_GREETING = 65_536
_LONGEST_LINE = 1 << 28


class Store:
    """Listens for `size` ranks; in the launcher's process, or in rank 0's.

    Attributes:
        address: host and port.
        heard: by rank, the last message of each kind: hello, failed, bye, gone, and status (of who holds the rank).
    """

    def __init__(self, host: str, port: int, token: str, size: int, listen: str | None = None) -> None:
        self._token = token
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._log: list[tuple[int | None, bytes]] = []
        self._clients: dict[int, socket.socket] = {}
        self.heard: dict[int, dict[str, Any]] = {rank: {} for rank in range(size)}
        self._closed = False
        self._order: list[tuple[int, str]] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host if listen is None else listen, port), family=family, backlog=size)
        self.address: tuple[str, int] = (host, self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True, name="kgrun-store").start()

    def wait(self, seconds: float, until: Callable[[], bool]) -> bool:
        """Wait until `until` holds, looked at whenever something was said; whether it does."""
        with self._changed:
            return self._changed.wait_for(until, seconds)

    def events(self) -> list[tuple[int, str]]:
        """Rank and kind of what was heard of failures, in order."""
        with self._lock:
            return list(self._order)

    def snapshot(self) -> dict[int, dict[str, Any]]:
        """What was heard so far."""
        with self._lock:
            return {rank: dict(heard) for rank, heard in self.heard.items()}

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        rank = None
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(_HELLO_SECONDS)
            with connection.makefile("rb") as lines:
                first = json.loads(lines.readline(_LONGEST_GREETING))
                if not hmac.compare_digest(str(first["token"]), self._token) or first["from"] not in self.heard:
                    return
                connection.settimeout(None)
                if STATUS in first:
                    self._hear(first["from"], first)
                    return
                rank = first["from"]
                self._enter(rank, connection)
                while line := lines.readline(_LONGEST_LINE):
                    self._hear(rank, json.loads(line), line)
        if rank is not None:
            self._leave(rank)

    def _enter(self, rank: int, connection: socket.socket) -> None:
        with self._changed:
            if self._closed:
                raise ConnectionAbortedError
            self._clients[rank] = connection
            for to, line in self._log:
                if to is None or to == rank:
                    connection.sendall(line)

    def _hear(self, rank: int, message: Message, line: bytes | None = None) -> None:
        with self._changed:
            for kind in (HELLO, FAILED, BYE, GONE, STATUS):
                if kind in message:
                    self.heard[rank][kind] = message[kind]
                    if kind in (FAILED, GONE):
                        self._order.append((rank, kind))
            if line is not None:
                self._send(message.get("to"), line)
            self._changed.notify_all()

    def _send(self, to: int | None, line: bytes) -> None:
        self._log.append((to, line))
        for rank, client in self._clients.items():
            if to is None or to == rank:
                with contextlib.suppress(OSError):  # its own thread notices
                    client.sendall(line)

    def _leave(self, rank: int) -> None:
        with self._changed:
            self._clients.pop(rank, None)
            self._changed.notify_all()
            heard = self.heard[rank]
        if BYE not in heard and FAILED not in heard:
            message: Message = {"from": rank, GONE: True}
            self._hear(rank, message, json.dumps(message).encode() + b"\n")

    def close(self, patience: float = 0.0) -> None:
        """Stop listening, once all ranks have gone or `patience` seconds have passed."""
        self.wait(patience, lambda: not self._clients)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # closing alone would not wake the thread that accepts
        self._socket.close()
        with self._lock:
            self._closed = True
            for client in self._clients.values():
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)


def connect(address: tuple[str, int], seconds: float) -> socket.socket | None:
    """A connection to the store, tried again until it listens; None after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = socket.create_connection(address, timeout=max(0.1, min(5.0, deadline - time.monotonic())))
        except OSError:
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.05)
            continue
        found.settimeout(None)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found
