"""How many bytes a buffer holds: plain rounding to 512, and the padded rule of the older runtimes (S66)."""

from __future__ import annotations

from typing import Literal

ALIGNMENT = 512
# Guard bytes before and after communication memory, for engines that write past the ends (S67).
COMM_GUARD = 512
# Bytes that the padded rule always leaves spare behind the data.
_SPARE = 32 - 1

Padding = Literal["plain", "common"]


def held_bytes(nbytes: int, padding: Padding = "plain") -> int:
    """Bytes held for `nbytes`.

    "plain" rounds up to 512. "common" is floor((n + 512 + 31) / 512) · 512: at least 32 bytes stay spare, so reads a
    little past the end stay inside. A buffer of no bytes needs no memory under "plain" (B23), and 512 under "common".
    """
    if padding == "common":
        return (nbytes + ALIGNMENT + _SPARE) // ALIGNMENT * ALIGNMENT
    return nbytes + -nbytes % ALIGNMENT
