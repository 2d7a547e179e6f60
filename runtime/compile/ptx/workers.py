"""Threads that run launches: daemons, so that a kernel which never ends does not hold up the end of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

_tasks: SimpleQueue[tuple[Future[int], Callable[[int, int, int], int], tuple[int, int, int]]] = SimpleQueue()
_lock = threading.Lock()
_idle = 0
_waiting = 0


def submit(function: Callable[[int, int, int], int], *arguments: int) -> Future[int]:
    """Run `function` on an idle thread, or on a new one where none is idle."""
    global _waiting
    future: Future[int] = Future()
    first, second, third = arguments
    with _lock:
        _waiting += 1
        needed = _waiting > _idle
    if needed:
        threading.Thread(target=_serve, name="kgrun-cpu", daemon=True).start()
    _tasks.put((future, function, (first, second, third)))
    return future


def _serve() -> None:
    global _idle, _waiting
    while True:
        with _lock:
            _idle += 1
        future, function, arguments = _tasks.get()
        with _lock:
            _idle -= 1
            _waiting -= 1
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)
