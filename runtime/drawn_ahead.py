"""Random initial data of several tensors, drawn by threads ahead of where they are wanted: numpy lets others run."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kgrun.runtime.host_data import host_array

if TYPE_CHECKING:
    import numpy as np

    from kgrun.graphs.bound import BoundGraph, BoundTensor

    Array = np.ndarray[Any, Any]

LEAST = 1 << 20  # bytes worth a thread
_EARLY = 64 << 20  # bytes drawn before it is known whether the device has room for them
_MOST_AT_ONCE = 16


class _Draw(threading.Thread):
    """One array on its way."""

    def __init__(self, make: Callable[[], Array]) -> None:
        super().__init__(daemon=True)
        self._make = make
        self._made: Array | None = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._made = self._make()
        except BaseException as error:  # raised where the array is wanted
            self._error = error

    def result(self) -> Array:
        self.join()
        if self._error is not None:
            raise self._error
        assert self._made is not None
        return self._made


def is_drawn(tensor: BoundTensor, given: bool) -> bool:
    """Whether the tensor's data take a while to make: many random numbers that nothing replaces."""
    spec = tensor.spec
    if given or spec is None or spec.init is None or spec.data is not None or tensor.type.nbytes < LEAST:
        return False
    return any(hasattr(spec.init, rule) for rule in ("normal", "uniform", "integers"))


def early_draws(bound: BoundGraph, given: Mapping[str, Array], seed: int) -> dict[str, Callable[[], Array]]:
    """Begin to draw the first of a graph's random data while its session opens; each call waits for its array."""
    found: dict[str, Callable[[], Array]] = {}
    left = _EARLY
    for name, tensor in bound.tensors.items():
        if is_drawn(tensor, name in given) and name not in bound.fed | bound.cached:
            left -= tensor.type.nbytes
            if left < 0 or len(found) == _MOST_AT_ONCE:
                break
            found[name] = _Draw(partial(host_array, bound, tensor, given, seed)).result
    return found


def in_order(
    makes: Sequence[Callable[[], Array]], nbytes: Sequence[int], drawn: Sequence[bool], room: int
) -> Iterator[Array]:
    """What each call returns, in their order; those that are `drawn` run ahead, on threads.

    Args:
        nbytes: of each array; those that are ready or on their way take no more than `room` together, or are one.
    """
    threads = min(_MOST_AT_ONCE, os.cpu_count() or 1)
    if threads < 2 or sum(drawn) < 2:
        for make in makes:
            yield make()
        return
    ahead: deque[tuple[int, _Draw]] = deque()
    waiting = deque(i for i, flag in enumerate(drawn) if flag)
    for i, make in enumerate(makes):
        while waiting and len(ahead) < threads:
            held = sum(nbytes[j] for j, _ in ahead)
            if ahead and held + nbytes[waiting[0]] > room:
                break
            ahead.append((waiting[0], _Draw(makes[waiting.popleft()])))
        if ahead and ahead[0][0] == i:
            yield ahead.popleft()[1].result()
        else:
            yield make()
