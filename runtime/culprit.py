"""Which step a fault of the device belongs to, and how a message names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from kgrun.graphs.bound import Dim3
from kgrun.graphs.errors import KgrunError
from kgrun.runtime.program import Launch, Program, Step

Tell = Callable[[Mapping[str, object]], None]


def step_row(program: Program, step: Step) -> dict[str, object]:
    """A step as the `details` of an error have it: names, launch, position (`step` counts from 0)."""
    launch = step.work if isinstance(step.work, Launch) else None
    return {
        "kernel": step.op,
        "node": program.node_of(step).name,
        "step": step.index,
        "steps": len(program.steps),
        "step_name": step.name,
        "stream": step.stream,
        "grid": list(launch.grid) if launch else None,
        "block": list(launch.block) if launch else None,
        "shared_bytes": launch.shared if launch else None,
    }


def step_title(program: Program, step: Step) -> str:
    """`kernel 'saxpy' of node 'blend'`."""
    node = program.node_of(step)
    kind = "operator" if node.launch is None else "kernel"
    part = "" if step.name == node.name else f" ({step.name})"
    return f"{kind} {step.op!r} of node {node.name!r}{part}"


def step_launch(program: Program, step: Step) -> str:
    """`step 2 of 3, grid 4×1×1, block 256×1×1`; steps count from 1."""
    words = f"step {step.index + 1} of {len(program.steps)}"
    if isinstance(step.work, Launch):
        words += f", grid {_extents(step.work.grid)}, block {_extents(step.work.block)}"
    return words


def _extents(extents: Dim3) -> str:
    return "×".join(map(str, extents))


def blame(error: KgrunError, program: Program) -> None:
    """Give an error with exactly one suspect its step: name, launch, place in the file. Others stay as they are."""
    suspects = error.details.get("suspects")
    if not isinstance(suspects, list) or len(suspects) != 1 or "node" in error.details:
        return
    step = next((step for step in program.steps if step.name == suspects[0]), None)
    if step is None:
        return
    what, refused = error.message, error.message.startswith("launching ")
    for prefix in (f"launching {step.name}: ", f"{step.name}: "):
        what = what.removeprefix(prefix)
    verb = "cannot be launched" if refused else "failed"
    error.message = f"{step_title(program, step)} {verb}: {what}"
    error.args = (error.message,)
    error.help = "; ".join(part for part in (step_launch(program, step), error.help) if part)
    error.details |= step_row(program, step)
    error.at(program.graph.source.place("nodes", program.node_of(step).position))


@contextmanager
def blaming(program: Callable[[], Program]) -> Iterator[None]:
    """Errors raised inside are laid to a step of the program where that is certain."""
    try:
        yield
    except KgrunError as error:
        blame(error, program())
        raise


class TellStep:
    """An observer that tells each step before it is issued, for whoever must say later which one never ended."""

    def __init__(self, program: Program, tell: Tell) -> None:
        self._tell = tell
        # Made beforehand: telling a step then costs a copy of its row, also on a host that times steps.
        self._rows = [
            {
                "doing": f"{step_title(program, step)} was running",
                "launch": step_launch(program, step),
                "where": str(program.graph.source.place("nodes", program.node_of(step).position)) or None,
                "details": step_row(program, step),
            }
            for step in program.steps
        ]

    def before(self, step: Step) -> None:
        """Tell the step."""
        self._tell(self._rows[step.index])

    def after(self, step: Step) -> None:
        """Nothing: a wait may follow."""

    def finish(self) -> None:
        """Tell that the steps ended."""
        self._tell({"doing": "running the whole graph"})
