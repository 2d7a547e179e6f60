"""Collectives of a group of one rank: what every rank gives is what it has, so they are copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kgrun.runtime.collectives.layout import operands
from kgrun.runtime.collectives.world import current

if TYPE_CHECKING:
    from kgrun.runtime.devices.base import Address
    from kgrun.runtime.program import LibraryCall

Copy = Callable[[int, int, int], object]  # target, source, bytes


def is_alone(call: LibraryCall) -> bool:
    """Whether the call's group is one rank."""
    return len(call.config["members"]) == 1 and call.routine not in ("send", "receive")


def in_no_job(call: LibraryCall) -> bool:
    """Whether it is, and none of a job of one rank, which was started to have its engine."""
    world = current()
    return is_alone(call) and not (world is not None and world.info.size == 1)


def copies(call: LibraryCall, address: Address, copy: Copy) -> Callable[[], None]:
    """The call of a group of one as copies, ready to be issued."""
    sources, targets = operands(call, address)
    moved = [
        (target, source, nbytes)
        for (source, nbytes), (target, _) in zip(sources, targets, strict=True)
        if nbytes and target != source
    ]

    def run() -> None:
        for target, source, nbytes in moved:
            copy(target, source, nbytes)

    return run
