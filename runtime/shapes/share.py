"""What the sessions of one graph at many shapes share: parameters, and arenas of dynamic memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kgrun.runtime.checks.skipped import POISON
from kgrun.runtime.devices.base import Device
from kgrun.runtime.program import MemoryClass, Program

if TYPE_CHECKING:
    from kgrun.runtime.session import Session


class ShapeShare:
    """One shape's part: it uses the parameters of `owner` whose type is the same there; None for the owner itself.

    Attributes:
        arena: address of the dynamic memory, once it is there.
    """

    def __init__(self, owner: Session | None) -> None:
        self.owner = owner
        self.arena: int | None = None
        self._names: dict[int, str] = {}

    def adopted(self, program: Program) -> Program:
        """The program in which what the owner holds takes no bytes."""
        if self.owner is None:
            return program
        theirs = {buffer.name: buffer for buffer in self.owner.planned.buffers}
        tensors = self.owner.planned.graph.tensors
        buffers = list(program.buffers)
        for index, buffer in enumerate(buffers):
            other, mine = theirs.get(buffer.name), program.graph.tensors.get(buffer.name)
            if (
                other is not None
                and mine is not None
                and buffer.memory_class in (MemoryClass.PARAMETER, MemoryClass.CONSTANT)
                and mine.producer is None
                and mine.type == tensors[buffer.name].type
                and (buffer.nbytes, buffer.memory_class) == (other.nbytes, other.memory_class)
            ):
                self._names[index] = buffer.name
                buffers[index] = replace(buffer, nbytes=0)
        return replace(program, buffers=tuple(buffers))

    @property
    def shared(self) -> frozenset[str]:
        """Names of the parameters and constants that lie with the owner."""
        return frozenset(self._names.values())

    def places(self) -> dict[int, int]:
        """Addresses of the owner's parameters, by buffer."""
        if self.owner is None:
            return {}
        loaded = self.owner.loaded
        return {index: loaded.address(loaded.program.slots[name]) for index, name in self._names.items()}


@dataclass(slots=True)
class Arena:
    """Dynamic memory that several sessions use in turn."""

    address: int
    nbytes: int
    users: int = 0


class Arenas:
    """Arenas of one device: a session gets the smallest that is large enough, or a new one (S50)."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._arenas: list[Arena] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all arenas."""
        return sum(arena.nbytes for arena in self._arenas)

    def take(self, nbytes: int) -> Arena | None:
        """An arena of at least `nbytes`; None where none is needed. DoesNotFit where there is no room."""
        if nbytes == 0:
            return None
        fitting = [arena for arena in self._arenas if arena.nbytes >= nbytes]
        found = min(fitting, key=lambda arena: arena.nbytes, default=None)
        if found is None:
            self.drop_unused()
            found = Arena(self._device.allocate(nbytes), nbytes)
            self._device.fill(found.address, POISON, nbytes)
            self._arenas.append(found)
        found.users += 1
        return found

    def release(self, arena: Arena | None) -> None:
        """One user less."""
        if arena is not None:
            arena.users -= 1
            self.drop_unused()

    def drop_unused(self) -> None:
        """Free arenas that nobody uses."""
        for arena in [arena for arena in self._arenas if arena.users == 0]:
            self._arenas.remove(arena)
            self._device.free(arena.address)
