"""The execute loop: issue prepared steps in order; what watches a run is an observer, not a branch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kgrun.runtime.devices.base import Device, PreparedStep
from kgrun.runtime.program import Step


class Observer(Protocol):
    """Watches a run: called around every step, and once it is known that all steps ended."""

    def before(self, step: Step) -> None:
        """Just before a step is issued."""
        ...

    def after(self, step: Step) -> None:
        """Just after a step was issued; it may still be running."""
        ...

    def finish(self) -> None:
        """After the device was synchronised."""
        ...


def run_observed(
    device: Device, steps: Sequence[Step], prepared: Sequence[PreparedStep], observers: Sequence[Observer]
) -> None:
    """Issue all steps with observers around each, then wait for them."""
    for step, ready in zip(steps, prepared, strict=True):
        for observer in observers:
            observer.before(step)
        ready.launch()
        for observer in observers:
            observer.after(step)
    device.synchronize()
    for observer in observers:
        observer.finish()


class StepTimer:
    """Takes a mark of the device before and after each step.

    Attributes:
        samples: nanoseconds of each step, one list a step, one entry a run.
        timeline: (step index, start, duration) of the last run, in nanoseconds from its first mark.
    """

    def __init__(self, device: Device, steps: int) -> None:
        self._device = device
        self._marks: list[tuple[int, Any, Any]] = []
        self._start: Any = None
        self.samples: list[list[int]] = [[] for _ in range(steps)]
        self.timeline: list[tuple[int, int, int]] = []

    def before(self, step: Step) -> None:
        """Mark the start."""
        self._start = self._device.record()

    def after(self, step: Step) -> None:
        """Mark the end."""
        self._marks.append((step.index, self._start, self._device.record()))

    def finish(self) -> None:
        """Turn marks into samples."""
        self.timeline = []
        for index, start, end in self._marks:
            duration = self._device.elapsed_ns(start, end)
            self.samples[index].append(duration)
            self.timeline.append((index, self._device.elapsed_ns(self._marks[0][1], start), duration))
        self._marks.clear()


class SyncEach:
    """Waits after every step, so that a fault names its kernel (S139)."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def before(self, step: Step) -> None:
        """Nothing."""

    def after(self, step: Step) -> None:
        """Wait; a fault is this step's: nothing else was issued since the last wait."""
        from kgrun.graphs.errors import DeviceFault

        try:
            self._device.synchronize()
        except DeviceFault as error:
            error.details["suspects"] = [step.name]
            raise

    def finish(self) -> None:
        """Nothing."""
