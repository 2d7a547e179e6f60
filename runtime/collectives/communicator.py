"""What moves bytes between ranks: the protocol over host arrays that the CPU device's collectives are written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class Request(Protocol):
    """An operation under way."""

    def done(self) -> bool:
        """Whether it has ended; drives it on. DeviceFault where it failed."""
        ...


class Communicator(Protocol):
    """One group of ranks. Ranks here are positions in the group; arrays are contiguous and stay until `done`.

    What reduces takes typed arrays of a dtype that the engine knows; what only moves takes bytes. `source` None: the
    operand already lies in `target`.
    """

    def all_reduce(self, source: Array | None, target: Array, reduction: str) -> Request: ...
    def reduce(self, source: Array | None, target: Array, reduction: str, root: int) -> Request: ...
    def reduce_scatter(self, source: Array, target: Array, reduction: str) -> Request: ...
    def all_gather(self, source: Array, target: Array) -> Request: ...
    def all_to_all(self, source: Array | None, target: Array) -> Request: ...
    def broadcast(self, data: Array, root: int) -> Request: ...
    def send(self, source: Array, peer: int) -> Request: ...
    def receive(self, target: Array, peer: int) -> Request: ...
    def barrier(self) -> Request: ...
