"""A pool on a device: blocks are device allocations, addresses are real."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from kgrun.graphs.errors import DoesNotFit, InternalError
from kgrun.runtime.memory.alignment import held_bytes
from kgrun.runtime.memory.pool.best_fit import BestFitPool
from kgrun.runtime.memory.pool.blocks import UNIT, NoRoom
from kgrun.runtime.memory.pool.explain import exhausted
from kgrun.runtime.memory.pool.statistics import Holder, PoolExhausted, PoolStatistics, UnknownAddress


class Memory(Protocol):
    """The part of a device that a pool uses; every `devices.base.Device` has it."""

    def allocate(self, nbytes: int) -> int:
        """Address of fresh bytes; DoesNotFit when there is no room."""
        ...

    def free(self, address: int) -> None:
        """Return an allocation."""
        ...

    def free_memory(self, headroom: int = 0) -> tuple[int, int]:
        """Free and total bytes; `headroom` of the free ones count as taken."""
        ...


class LivePool:
    """A best-fit pool on a device, for work whose sizes are known only while it runs.

    Bytes are handed out before the work on earlier holders has ended: that is right on one stream, where later work
    comes after it. A context manager; one thread at a time may use it, whichever that is.

    Args:
        device: where the blocks come from.
        unit: bytes to grow by, rounded up to 512.
        limit: most bytes of all blocks together; None: what the device has.
        headroom: bytes of the device's free memory that stay free for code, stacks and libraries (U2).
        reserve: take the first block now, so that a lack of memory shows before anything runs (S6).

    Raises:
        DoesNotFit: KG411, with `reserve`, where the device has no room for a block.
    """

    def __init__(
        self, device: Memory, *, unit: int = UNIT, limit: int | None = None, headroom: int = 0, reserve: bool = False
    ) -> None:
        self._source = _DeviceBlocks(device, limit, headroom)
        self._pool = BestFitPool(self._source, held_bytes(max(unit, 1)))
        if reserve:
            self.free(self.allocate(1, "the first block of the pool"))

    def allocate(self, nbytes: int, name: str = "", *, step: str | None = None) -> int:
        """Address of `nbytes` bytes, aligned to 512; 0 bytes get 512 (S66).

        Args:
            name: the tensor they are for; errors and reports say it.
            step: the step that asks.

        Raises:
            DoesNotFit: KG411 with what is needed, what there is, fragments and the largest holders (U5).
        """
        return self.allocate_contiguous([nbytes], [name], step=step)[0]

    def allocate_contiguous(
        self, sizes: Sequence[int], names: Sequence[str] = (), *, step: str | None = None
    ) -> list[int]:
        """Addresses side by side, each aligned to 512 and freed on its own (S72). DoesNotFit as `allocate`."""
        try:
            return self._pool.allocate_contiguous(sizes, names)
        except PoolExhausted as error:
            raise exhausted(error, step, self._source.refusal) from self._source.refusal

    def free(self, address: int) -> None:
        """Give bytes back to the pool; InternalError for an address that it did not hand out (S73)."""
        try:
            self._pool.free(address)
        except UnknownAddress as error:
            raise InternalError(str(error), code="KG102") from None

    def size_of(self, address: int) -> int:
        """Bytes held at `address`, at least those asked for."""
        return self._pool.size_of(address)

    def statistics(self) -> PoolStatistics:
        """Bytes now, and the most there were."""
        return self._pool.statistics()

    def check(self) -> list[str]:
        """Contradictions in the pool's books (S71); empty in a sound pool."""
        return self._pool.check()

    def leaks(self) -> list[Holder]:
        """What is still in use, largest first."""
        return self._pool.holders(None)

    def trim(self) -> int:
        """Give unused blocks back to the device; the bytes given."""
        return self._pool.trim()

    def close(self) -> None:
        """Give all blocks back, also those in use: look at `leaks` before. May be called twice."""
        self._source.close()
        self._pool = BestFitPool(self._source)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _DeviceBlocks:
    """Blocks of a device. `refusal` is the device's last word where it refused one."""

    def __init__(self, device: Memory, limit: int | None, headroom: int) -> None:
        self._device, self._limit, self._headroom = device, limit, headroom
        self._taken: dict[int, int] = {}
        self.refusal: DoesNotFit | None = None

    def room(self) -> int:
        free = self._device.free_memory(self._headroom)[0]
        if self._limit is not None:
            free = min(free, self._limit - sum(self._taken.values()))
        return free

    def take(self, nbytes: int) -> int:
        try:
            address = self._device.allocate(nbytes)
        except DoesNotFit as error:
            self.refusal = error
            raise NoRoom from error
        self.refusal = None
        self._taken[address] = nbytes
        return address

    def give(self, address: int) -> None:
        del self._taken[address]
        self._device.free(address)

    def close(self) -> None:
        while self._taken:
            self.give(next(reversed(self._taken)))
