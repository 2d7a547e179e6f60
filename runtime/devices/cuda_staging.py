"""Copies between pageable host arrays and the GPU through a ring of pinned blocks.

The driver copies pageable memory at a few GB/s; threads that fill pinned blocks while the GPU drains others come near
the bus. Pinning is slow, so the blocks are made at the first large copy and kept. Where the host gives no pinned memory
the driver copies pageable memory after all: slower, with a warning, and no fault of the GPU (U1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.devices.cuda_driver import Driver
from kgrun.runtime.devices.cuda_errors import is_sticky
from kgrun.runtime.host_memory import HostMemory, pinned_refused

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    import numpy as np

    Array = np.ndarray[Any, Any]

WORTH_STAGING = 8 << 20
BLOCK = 8 << 20
BLOCKS = 4


class Staging:
    """The ring of one device. Every copy ends before the call returns.

    Attributes:
        refusal: why there is no ring; None where there is one, or none was needed yet.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._blocks: list[Array] = []
        self._pool: ThreadPoolExecutor | None = None
        self.refusal: str | None = None

    def upload(self, address: int, data: Array, host: HostMemory) -> None:
        """Copy `data` (bytes, one-dimensional) to `address`."""
        import numpy as np

        driver = self._driver
        if not self._made(data.nbytes, host):
            driver.copy_in(address, data)
            driver.synchronize()
            return
        drained: list[Any] = [None] * BLOCKS
        filling: list[tuple[int, int, Future[None]]] = []
        for index, (start, size) in enumerate(_chunks(data.nbytes)):
            slot = index % BLOCKS
            block = self._blocks[slot]
            if index >= BLOCKS:
                self._issue(address, *filling[index - BLOCKS], drained)
                driver.wait(drained[slot])
            job = self._submit(np.copyto, block[:size], data[start : start + size])
            filling.append((start, size, job))
        for start, size, job in filling[-BLOCKS:]:
            self._issue(address, start, size, job, drained)
        driver.synchronize()

    def download(self, data: Array, address: int, host: HostMemory) -> None:
        """Copy from `address` into `data` (bytes, one-dimensional)."""
        import numpy as np

        driver = self._driver
        if not self._made(data.nbytes, host):
            driver.copy_out(data, address)
            driver.synchronize()
            return
        emptying: list[Future[None] | None] = [None] * BLOCKS
        arriving: list[tuple[int, int, int, Any]] = []

        def land() -> None:
            slot, start, size, mark = arriving.pop(0)
            driver.wait(mark)
            emptying[slot] = self._submit(np.copyto, data[start : start + size], self._blocks[slot][:size])

        for index, (start, size) in enumerate(_chunks(data.nbytes)):
            slot = index % BLOCKS
            if len(arriving) == BLOCKS - 1:
                land()
            busy = emptying[slot]
            if busy is not None:
                busy.result()
            driver.copy_out(self._blocks[slot][:size], address + start)
            arriving.append((slot, start, size, driver.record()))
        while arriving:
            land()
        for job in emptying:
            if job is not None:
                job.result()

    def close(self) -> None:
        """Give the pinned blocks back."""
        self._blocks.clear()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _issue(self, address: int, start: int, size: int, job: Future[None], drained: list[Any]) -> None:
        job.result()
        slot = start // BLOCK % BLOCKS
        self._driver.copy_in(address + start, self._blocks[slot][:size])
        drained[slot] = self._driver.record()

    def _made(self, nbytes: int, host: HostMemory) -> bool:
        """Whether a copy of so many bytes goes through the ring; makes the blocks that are missing."""
        if nbytes < WORTH_STAGING or self.refusal is not None:
            return False
        try:
            while len(self._blocks) < min(BLOCKS, -(-nbytes // BLOCK)):
                host.hold("pinned blocks for copies", (len(self._blocks) + 1) * BLOCK)
                self._blocks.append(self._driver.pinned(BLOCK))
        except DoesNotFit as error:
            self._refuse(pinned_refused(BLOCK, error.message), host)
        except self._driver.errors as error:
            if is_sticky(error):
                raise
            self._refuse(pinned_refused(BLOCK, str(error)), host)
        return self.refusal is None

    def _refuse(self, error: DoesNotFit, host: HostMemory) -> None:
        self.refusal = f"{error.message}; large copies use pageable memory, which is slower"
        self._blocks.clear()
        host.drop("pinned blocks for copies")

    def _submit(self, function: Callable[..., None], *args: Any) -> Future[None]:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(BLOCKS)
        return self._pool.submit(function, *args)


def _chunks(nbytes: int) -> Iterator[tuple[int, int]]:
    for start in range(0, nbytes, BLOCK):
        yield start, min(BLOCK, nbytes - start)
