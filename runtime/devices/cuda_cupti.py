"""Times of kernels in a run by CUPTI's activity records, where the package `cupti-python` is installed.

The steps are captured in a row, so the records of a replay come in the order of the steps; how many belong to each step
is known from a graph of that step alone. Records hold when the hardware started and ended a kernel, copy or fill.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

Call = Callable[[], Any]
Span = tuple[int, int]  # start and end in nanoseconds

_BUFFER_BYTES = 8 << 20
_KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET")


class Unavailable(Exception):
    """CUPTI cannot be used here; the text says why."""


class Chains(Protocol):
    """Captures calls in a row."""

    def chain(self, calls: Sequence[Call]) -> Any:
        """A replay with `launch`, `close` and the number of its `nodes`."""
        ...


_spans: list[Span] = []
_registered = False


def kernel_times(
    chains: Chains, calls: Sequence[Call], runs: int, empty: Call, flush: Call | None, wait: Callable[[], None]
) -> tuple[list[list[int]], int]:
    """Nanoseconds of each call, `runs` times, in runs of all of them; and what an empty kernel's records say.

    Args:
        flush: called before each step; its records are dropped.
        wait: returns when all that was launched has ended.

    Raises:
        Unavailable: no CUPTI, or its records do not match the steps.
    """
    with _recording() as collect:
        units = [[flush, call] if flush is not None else [call] for call in calls]
        counts = [_nodes(chains, unit) for unit in units]
        dropped = _nodes(chains, [flush]) if flush is not None else 0
        replays = _record(chains, [call for unit in units for call in unit], runs, collect, wait)
        empties = _record(chains, [empty] * 8, 3, collect, wait)
    floor = sorted(end - start for spans in empties for start, end in spans)
    if not floor:
        raise Unavailable("it recorded nothing")
    return assign(replays, counts, dropped), floor[len(floor) // 2]


def assign(replays: Sequence[Sequence[Span]], counts: Sequence[int], dropped: int = 0) -> list[list[int]]:
    """Times of each step from the records of each replay, in order of their start.

    Args:
        counts: records a step; the first `dropped` of each do not count. A step of several takes from the first start
            to the last end.

    Raises:
        Unavailable: a replay has another number of records.
    """
    samples: list[list[int]] = [[] for _ in counts]
    for spans in replays:
        if len(spans) != sum(counts):
            raise Unavailable(f"it made {len(spans)} records where {sum(counts)} were expected")
        at = 0
        for times, count in zip(samples, counts, strict=True):
            own = spans[at + dropped : at + count]
            at += count
            if own:
                times.append(max(end for _, end in own) - own[0][0])
    return samples


def _nodes(chains: Chains, calls: Sequence[Call]) -> int:
    replay = chains.chain(calls)
    try:
        return int(replay.nodes)
    finally:
        replay.close()


def _record(
    chains: Chains, calls: Sequence[Call], runs: int, collect: Callable[[], list[Span]], wait: Callable[[], None]
) -> list[list[Span]]:
    replay = chains.chain(calls)
    found = []
    try:
        for _ in range(runs + 1):
            replay.launch()
            wait()
            found.append(sorted(collect()))
    finally:
        replay.close()
    return found[1:]  # the first one warms up


@contextlib.contextmanager
def _recording() -> Iterator[Callable[[], list[Span]]]:
    """Records are made inside; the call given returns those since it was called last."""
    try:
        from cupti import cupti
    except ImportError as error:
        raise Unavailable(f"`cupti-python` cannot be imported ({error})") from None
    enabled = []
    try:
        _register(cupti)
        for name in _KINDS:
            cupti.activity_enable(getattr(cupti.ActivityKind, name))
            enabled.append(name)

        def collect() -> list[Span]:
            cupti.activity_flush_all(1)
            spans = list(_spans)
            _spans.clear()
            return spans

        collect()
        yield collect
    except Unavailable:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "cupti":
            raise
        raise Unavailable(str(error)) from None
    finally:
        for name in enabled:
            with contextlib.suppress(Exception):
                cupti.activity_disable(getattr(cupti.ActivityKind, name))


def _register(cupti: Any) -> None:
    global _registered
    if _registered:
        return
    kinds = {getattr(cupti.ActivityKind, name) for name in _KINDS}

    def completed(activities: Sequence[Any]) -> None:
        _spans.extend((int(a.start), int(a.end)) for a in activities if a.kind in kinds)

    cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), completed)
    _registered = True
