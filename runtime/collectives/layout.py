"""Where the operands of a collective lie, and which of them one call takes together: neighbours, as planned (S57)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgrun.runtime.devices.base import Address
    from kgrun.runtime.program import LibraryCall

Span = tuple[int, int]  # address and bytes

# Results do not depend on what stands beside an element, so the padding between members may travel with them.
FUSED = ("all_reduce", "reduce", "broadcast")
_MOST_PADDING = 0.25


def operands(call: LibraryCall, address: Address) -> tuple[list[Span], list[Span]]:
    """What a lowered collective reads, and what it writes."""
    places = [0 if pointer is None else address(pointer) for pointer in call.args]
    config, count = call.config, len(call.config["counts"])
    sizes = [n * config["itemsize"] for n in (*config["counts"], *config["result_counts"])]
    spans = list(zip(places, sizes, strict=False))  # a barrier has a token, and no sizes
    return spans[:count], spans[count:]


def fused(routine: str, sources: Sequence[Span], targets: Sequence[Span], itemsize: int) -> bool:
    """Whether one call from the first byte to the last does what one a tensor would.

    Args:
        sources, targets: address and bytes of each operand.
        itemsize: bytes of an element; distances must be whole elements.
    """
    if routine not in FUSED or len(sources) < 2:
        return False
    distances = [[address - spans[0][0] for address, _ in spans] for spans in (sources, targets)]
    if distances[0] != distances[1] or any(distance % itemsize for distance in distances[0]):
        return False
    ends = [distance + nbytes for distance, (_, nbytes) in zip(distances[0], sources, strict=True)]
    if any(start < end for start, end in zip(distances[0][1:], ends[:-1], strict=True)):
        return False
    held = sum(nbytes for _, nbytes in sources)
    return ends[-1] - held <= max(4096, held * _MOST_PADDING)


def whole(spans: Sequence[Span]) -> Span:
    """From the first byte to the last: address and bytes."""
    (first, _), (last, nbytes) = spans[0], spans[-1]
    return first, last + nbytes - first
