"""Device memory of an eager run: blocks with reference counts, taken from a pool and returned to it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.checks.skipped import POISON
from kgrun.runtime.devices.base import Device
from kgrun.runtime.memory.alignment import held_bytes
from kgrun.runtime.memory.pool.live import LivePool
from kgrun.runtime.program import MemoryClass

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False)
class Block:
    """Bytes on the device, or the promise of them.

    Attributes:
        name: of the tensor, or `node.workspace[i]`, that they were taken for.
        address: None until they are needed there.
        content: host array that they hold, where it is known: uploaded when a step first needs it.
        refs: how many tensors and users hold it; at none it returns to the pool.
        fixed: how many of them are parameters, constants or inputs, which hold it for the session.
    """

    name: str
    nbytes: int
    memory_class: MemoryClass
    address: int | None = None
    content: Array | None = None
    refs: int = 1
    fixed: int = 0


@dataclass(slots=True, eq=False)
class Tensor:
    """A value of the run: its exact type, and the block it lives in (several tensors may share one).

    Attributes:
        host: its elements once they were read back, for operators that need values.
    """

    type: TensorType
    block: Block
    host: tuple[Any, ...] | None = field(default=None)


@dataclass(slots=True)
class Usage:
    """Aligned bytes of one run: dynamic ones taken in turn, dynamic and static ones held now, most of both at once."""

    taken: int = 0
    live: int = 0
    static: int = 0
    most: int = 0


class Store:
    """Blocks of one session.

    Attributes:
        usage: of the run that goes on.
        poisoned: fill what is taken, so that nothing stale can pass for a result.
        lowest: smallest address handed out, from which reports count offsets.
        uploaded: bytes copied to the device, and nanoseconds that took.
    """

    def __init__(self, device: Device, pool: LivePool) -> None:
        self.device, self.pool = device, pool
        self.usage = Usage()
        self.poisoned = False
        self.lowest: int | None = None
        self.uploaded = [0, 0]
        self._held: set[Block] = set()

    def block(self, name: str, nbytes: int, memory_class: MemoryClass) -> Block:
        """Fresh bytes; none of them where `nbytes` is 0."""
        made = Block(name, nbytes, memory_class)
        self._take(made)
        return made

    def promised(self, name: str, content: Array, memory_class: MemoryClass) -> Block:
        """Bytes that are taken and filled when a step first needs them."""
        return Block(name, content.nbytes, memory_class, content=content)

    def address(self, block: Block) -> int:
        """Where a block lies, uploaded by now; 0 for one of no bytes."""
        if block.address is None:
            if block.nbytes == 0:
                return 0
            self._take(block)
            if block.content is not None:
                self.fill(block, block.content)
        assert block.address is not None
        return block.address

    def fill(self, block: Block, array: Array) -> None:
        """Copy a host array into a block that has an address."""
        if block.address is None:
            return
        started = time.perf_counter_ns()
        self.device.upload(block.address, array)
        self.uploaded[0] += array.nbytes
        self.uploaded[1] += time.perf_counter_ns() - started

    def download(self, tensor: Tensor) -> Array:
        """The tensor's elements as a host array; waits for earlier steps."""
        kind, block = tensor.type, tensor.block
        if block.address is None and block.content is not None:
            # An alias may be shorter than what it lies in.
            held = np.ascontiguousarray(block.content).reshape(-1).view(np.uint8)[: kind.nbytes]
            return held.view(numpy_dtype(kind.dtype)).reshape(kind.shape)
        array = np.empty(kind.shape, dtype=numpy_dtype(kind.dtype))
        if array.nbytes:
            self.device.download(self.address(block), array)
        return array

    def retain(self, block: Block) -> Block:
        """One more holder."""
        block.refs += 1
        return block

    def release(self, block: Block) -> None:
        """One holder less; without any the bytes return to the pool."""
        block.refs -= 1
        assert block.refs >= 0, f"{block.name} is released too often"
        if block.refs == 0 and block.address is not None:
            self.pool.free(block.address)
            self._held.discard(block)
            self._count(block, -1)
            block.address = None

    def start_run(self) -> None:
        """Count anew; what is held already stays counted."""
        live = sum(held_bytes(b.nbytes) for b in self._held if not b.memory_class.static)
        static = sum(held_bytes(b.nbytes) for b in self._held if b.memory_class.static)
        self.usage = Usage(taken=live, live=live, static=static, most=live + static)

    def _take(self, block: Block) -> None:
        if block.nbytes == 0:
            return
        block.address = self.pool.allocate(block.nbytes, block.name)
        self._held.add(block)
        self.lowest = block.address if self.lowest is None else min(self.lowest, block.address)
        self._count(block, 1)
        if self.poisoned and block.content is None:
            self.device.fill(block.address, POISON, block.nbytes)

    def _count(self, block: Block, sign: int) -> None:
        usage, held = self.usage, sign * held_bytes(block.nbytes)
        if block.memory_class.static:
            usage.static += held
        else:
            usage.live += held
            usage.taken += max(held, 0)
        usage.most = max(usage.most, usage.live + usage.static)


class Restore:
    """Parameters as they were before runs that do not count."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.kept: dict[Block, Array] = {}

    def keep(self, block: Block) -> None:
        """Copy a parameter's bytes to the host before the first overwriting."""
        if block not in self.kept:
            copy = np.empty(block.nbytes, np.uint8)
            self._store.device.download(self._store.address(block), copy)
            self.kept[block] = copy

    def put_back(self) -> None:
        """Undo what was written since."""
        for block, copy in self.kept.items():
            self._store.fill(block, copy)
