"""Which operands of a collective one call can take together: tensors that lie side by side, as planned (S57)."""

from __future__ import annotations

from collections.abc import Sequence

# Results do not depend on what stands beside an element, so the padding between members may travel with them.
FUSED = ("all_reduce", "reduce", "broadcast")
_MOST_PADDING = 0.25


def fused(routine: str, sources: Sequence[tuple[int, int]], targets: Sequence[tuple[int, int]], itemsize: int) -> bool:
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


def whole(spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """From the first byte to the last: address and bytes."""
    (first, _), (last, nbytes) = spans[0], spans[-1]
    return first, last + nbytes - first
