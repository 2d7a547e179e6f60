"""What the host does beside a GPU: one page-locked block and the copies to and from it; steps that run on the host.

Page-locked memory is what the copy engines reach: 55 GB/s each way beside running kernels, where pageable memory gets a
tenth of that and stops the host meanwhile. Locking takes 0.7 s a GiB, so there is one block, made once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.devices.base import Address, HostBlock
from kgrun.runtime.devices.cuda_driver import Driver
from kgrun.runtime.program import ArrayRef, HostCall, Transfer

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


def locked_memory(driver: Driver, nbytes: int) -> HostBlock:
    """`nbytes` of page-locked memory, or of pageable memory where the driver refuses (U1).

    Raises:
        DoesNotFit: KG402, the host has not so many bytes to give.
    """
    import numpy as np

    try:
        return HostBlock(driver.pinned(nbytes))
    except driver.errors as error:
        reason = str(error)
    try:
        return HostBlock(np.empty(nbytes, np.uint8), reason)
    except MemoryError:
        raise DoesNotFit(f"the host has no room for {nbytes:,} bytes of offloaded tensors", code="KG402") from None


def transfer_call(driver: Driver, work: Transfer, address: Address, host: HostBlock | None) -> Callable[[], Any]:
    """The call that issues a transfer on the driver's stream."""
    assert host is not None, "a transfer needs host memory"
    there = host.data[work.host_offset : work.host_offset + work.nbytes]
    if work.direction == "in":
        return partial(driver.copy_in, address(work.pointer), there)
    return partial(driver.copy_out, there, address(work.pointer))


def host_call(
    work: HostCall, address: Address, download: Callable[[int, Array], None], upload: Callable[[int, Array], None]
) -> Callable[[], None]:
    """A function on the host between a download of its inputs and an upload of its results."""
    import numpy as np

    from kgrun.graphs.data import numpy_dtype

    def host(ref: ArrayRef) -> tuple[int, Array]:
        return address(ref.pointer), np.empty(ref.shape, numpy_dtype(ref.dtype))

    inputs = [None if ref is None else host(ref) for ref in work.inputs]
    outputs = [host(ref) for ref in work.outputs]

    def run() -> None:
        for item in inputs:
            if item is not None:
                download(*item)
        work.function([None if item is None else item[1] for item in inputs], [array for _, array in outputs])
        for place, array in outputs:
            upload(place, array)

    return run
