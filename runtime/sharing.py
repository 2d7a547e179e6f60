"""What a session may share with others on its device: bytes of buffers, and dynamic memory."""

from __future__ import annotations

from typing import Protocol

from kgrun.runtime.program import Program


class Sharing(Protocol):
    """One session's part. `arena`: address of dynamic memory that others use too, in turn; None takes its own."""

    arena: int | None

    def adopted(self, program: Program) -> Program:
        """The program in which what lies elsewhere takes no bytes."""
        ...

    def places(self) -> dict[int, int]:
        """Where that lies, by buffer; asked once the others are on the device."""
        ...
