"""Stands for `nccl.bindings.nccl` of nccl4py 0.6: its names, its arguments and what it refuses of them.

`test_cuda_nccl.py` compares the signatures with the true ones where nccl4py is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

ID = bytes(range(128))
VERSION = 22_703
SIGNATURES = {
    "all_reduce": ("sendbuff", "recvbuff", "count", "datatype", "op", "comm", "stream"),
    "reduce": ("sendbuff", "recvbuff", "count", "datatype", "op", "root", "comm", "stream"),
    "reduce_scatter": ("sendbuff", "recvbuff", "recvcount", "datatype", "op", "comm", "stream"),
    "all_gather": ("sendbuff", "recvbuff", "sendcount", "datatype", "comm", "stream"),
    "broadcast": ("sendbuff", "recvbuff", "count", "datatype", "root", "comm", "stream"),
    "send": ("sendbuff", "count", "datatype", "peer", "comm", "stream"),
    "recv": ("recvbuff", "count", "datatype", "peer", "comm", "stream"),
    "group_start": (),
    "group_end": (),
    "comm_abort": ("comm",),
    "comm_destroy": ("comm",),
    "comm_init_rank_scalable": ("nranks", "myrank", "n_id", "comm_ids", "config"),
    "get_unique_id": (),
    "get_version": (),
}


class NCCLError(Exception):
    """What the library refuses."""


class Comm:
    """A communicator: the bindings take nothing else for one, no integer either."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def __repr__(self) -> str:
        return f"comm of {self.ranks}"


class UniqueId:
    """An id; its bytes are what travels."""

    def __bytes__(self) -> bytes:
        return ID


class Log(list[Any]):
    """The calls in order; `refuses` names one that fails, with the reason."""

    refuses: tuple[str, str] | None = None


def check_arguments(name: str, arguments: tuple[Any, ...], comm: type) -> None:
    """Refuse what the bindings refuse: another number of arguments, or other types."""
    names = SIGNATURES[name]
    if len(arguments) != len(names):
        raise TypeError(f"{name}() takes exactly {len(names)} positional arguments ({len(arguments)} given)")
    for kind, value in zip(names, arguments, strict=True):
        if kind == "comm":
            if type(value) is not comm:
                raise TypeError(f"Cannot convert {type(value).__name__} to nccl.bindings.nccl.Comm")
        elif kind == "comm_ids":
            if not isinstance(value, bytearray) or len(value) != len(ID):
                raise ValueError("buf must be … a 1D contiguous writable buffer")
        elif type(value) is not int:
            raise TypeError(f"{kind} of {name} must be an int, not {type(value).__name__}")


def install(monkeypatch: pytest.MonkeyPatch) -> Log:
    """Put the fake where kgrun finds the bindings; what it is called with."""
    log, fake = Log(), ModuleType("nccl.bindings.nccl")
    depth = 0

    def call(name: str) -> Callable[..., Any]:
        def run(*arguments: Any) -> None:
            nonlocal depth
            check_arguments(name, arguments, Comm)
            if log.refuses is not None and log.refuses[0] == name:
                raise NCCLError(log.refuses[1])
            depth += (name == "group_start") - (name == "group_end")
            if depth < 0:
                raise NCCLError("group_end without group_start")
            log.append((name, *arguments))

        return run

    def init(*arguments: Any) -> Comm:
        call("comm_init_rank_scalable")(*arguments)
        return Comm(arguments[0])

    made: Any = fake
    for name in SIGNATURES:
        setattr(made, name, call(name))
    made.comm_init_rank_scalable, made.get_unique_id, made.get_version = init, UniqueId, lambda: VERSION
    for parent in ("nccl", "nccl.bindings"):
        monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
    monkeypatch.setitem(sys.modules, "nccl.bindings.nccl", fake)
    monkeypatch.setattr("kgrun.runtime.devices.cuda_nccl.same_context", lambda: lambda: None)
    return log
