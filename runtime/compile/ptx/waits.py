"""The mailbox of a thread: words in which it leaves operands and takes results, and one wait as a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MASK_WORD = 3
RESULT_WORD = 24
MAIL_WORDS = 40
DYNAMIC_BARRIER = 0x100  # identifier, thread count or predicate are in the mailbox


@dataclass(frozen=True)
class Wait:
    """One suspend point: its kind with flags, (word, i32 value) to leave, (destination, word, type) to take."""

    kind: int
    leave: tuple[tuple[int, str], ...] = ()
    take: tuple[tuple[str, int, str], ...] = ()


def mail_words() -> Iterator[int]:
    """The words for operands, the member mask's left out."""
    return (word for word in range(RESULT_WORD) if word != MASK_WORD)
