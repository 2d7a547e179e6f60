"""`kgrun execute` as a rank at which a fault is injected: `fault_program.py FAULT RANK WORDS…`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from kgrun.cli.boundary import guarded
from kgrun.runtime import measure
from kgrun.runtime.collectives import calls, mpi, world


def die() -> None:
    """End at once, as the kernel's out-of-memory killer does it."""
    os.kill(os.getpid(), signal.SIGKILL)


def crash() -> None:
    """A stray pointer."""
    os.kill(os.getpid(), signal.SIGSEGV)


def leave() -> None:
    """End without a word, with an exit code that looks well."""
    os._exit(0)


def hang() -> None:
    """Do nothing for longer than anybody waits."""
    time.sleep(600)


def stop() -> None:
    """As a debugger does it: not even threads go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


def throw() -> None:
    """A fault of the program itself."""
    raise RuntimeError("injected")


def memory() -> None:
    """No memory."""
    raise MemoryError


DEEDS = {deed.__name__: deed for deed in (die, crash, leave, hang, stop, throw, memory)}


def instead(owner: Any, name: str, deed: Callable[[], None], after: int = 0) -> None:
    """Do the deed before the call number `after` of `owner.name`."""
    original, count = getattr(owner, name), 0

    def call(*args: Any, **more: Any) -> Any:
        nonlocal count
        if count == after:
            deed()
        count += 1
        return original(*args, **more)

    setattr(owner, name, call)


def inject(fault: str) -> None:
    """Prepare `DEED-PLACE`."""
    deed_name, _, place = fault.partition("-")
    deed = DEEDS.get(deed_name)
    if fault == "no-mpi":
        mpi.missing = lambda: "mpi4py is not installed"
    elif fault == "other-step":
        original = world.World.propose
        world.World.propose = lambda self, what, *more: original(self, ["broadcast", what], *more)  # type: ignore
    else:
        assert deed is not None, fault
        owner, name, after = {
            "meet": (world, "Meeting", 0),
            "greet": (world.World, "greet", 0),
            "start": (mpi, "start", 0),
            "settle": (world.World, "settle", 0),
            "run": (calls._Calls, "run", 0),
            "later": (calls._Calls, "run", 3),
            "wait": (world.World, "wait", 2),
            "measure": (measure.Runner, "measure", 0),
            "end": (world.World, "finish", 0),
        }[place]
        instead(owner, name, deed, after)


if __name__ == "__main__":
    fault, rank, *words = sys.argv[1:]
    if os.environ.get("PMI_RANK", os.environ.get("RANK")) == rank:
        if fault == "other-words":
            words += ["--seed", "5"]
        elif fault == "other-graph":
            words[1] = words[1].replace("graph", "other")
        elif fault == "other-shape":
            words += ["--dim", "n=64"]
        elif fault != "none":
            inject(fault)
    sys.exit(guarded(words, own_process=True))
