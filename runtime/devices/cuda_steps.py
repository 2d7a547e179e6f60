"""Prepared steps of the CUDA device and the ways to issue them: one by one, in a lean loop, as a captured graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import length_hint
from typing import TYPE_CHECKING, Any

from kgrun.graphs.errors import DeviceFault
from kgrun.runtime.devices.base import NotCapturable, PreparedStep, Replay
from kgrun.runtime.devices.cuda_errors import translate

if TYPE_CHECKING:
    from kgrun.runtime.devices.cuda import CudaDevice

NAMED = 8  # steps that a message names
ON_HOST = "host clock"


class Prepared:
    """A step ready to be issued. `raw` is the bare call, for loops that count every nanosecond."""

    __slots__ = ("_device", "method", "name", "raw")

    def __init__(self, device: CudaDevice, name: str, raw: Callable[[], Any], method: str = "stream events") -> None:
        self._device, self.name, self.raw, self.method = device, name, raw, method

    def launch(self) -> None:
        """Issue the step; DeviceFault when the driver refuses it or an earlier step has failed."""
        self._device.driver.activate()
        self._device.issued.append(self.name)
        self.issue()

    def issue(self) -> None:
        """The bare call with errors that name the step, for a capture too."""
        device = self._device
        try:
            self.raw()
        except device.driver.errors as error:
            device._fail(error, f"launching {self.name}", self.name)


def issue_loop(device: CudaDevice, prepared: Sequence[PreparedStep]) -> Callable[[], None]:
    """One call that issues all steps: nothing but the packed driver calls in the loop."""
    raw = [step.raw if isinstance(step, Prepared) else step.launch for step in prepared]
    names = tuple(step.name if isinstance(step, Prepared) else "a step" for step in prepared)

    def run() -> None:
        device.driver.activate()
        device.issued.append(names)
        calls = iter(raw)
        try:
            for call in calls:
                call()
        except device.driver.errors as error:
            name = names[len(raw) - length_hint(calls) - 1]
            device._fail(error, f"launching {name}", name)

    return run


class DeviceReplay:
    """A captured graph whose faults are laid to its steps."""

    def __init__(self, device: CudaDevice, replay: Replay, names: Sequence[str]) -> None:
        self._device, self._replay = device, replay
        self.names = tuple(names)

    @property
    def nodes(self) -> int:
        """How many nodes the graph has."""
        return int(getattr(self._replay, "nodes", 1))

    def launch(self) -> None:
        """Issue the whole graph; DeviceFault when the driver refuses it or an earlier step has failed."""
        device = self._device
        device.driver.activate()
        device.issued.append(self.names)
        try:
            self._replay.launch()
        except device.driver.errors as error:
            device._fail(error, "launching the graph")

    def close(self) -> None:
        """Destroy the graph; silent, may be called twice."""
        if not self._device._lost and not self._device._closed:
            self._device.driver.activate()
            self._replay.close()


def capturable(prepared: Sequence[PreparedStep]) -> list[Prepared]:
    """The steps, all of which can be captured; NotCapturable names one that runs on the host."""
    steps = [step for step in prepared if isinstance(step, Prepared)]
    if len(steps) != len(prepared):
        raise NotCapturable("steps are left out or watched")
    for step in steps:
        if step.method == ON_HOST:
            raise NotCapturable(f"{step.name} runs on the host")
    return steps


def fault(error: Exception, doing: str, suspects: Sequence[str]) -> DeviceFault:
    """A sticky driver error as the user sees it, laid to the steps it may come from."""
    found = translate(error, doing)
    details = dict(found.details) | {"suspects": list(suspects[-NAMED:])}
    what = found.message.partition(": ")[2]
    if len(suspects) == 1:
        return DeviceFault(f"{suspects[0]}: {what}", code="KG601", help=found.help, details=details)
    shown = ", ".join(suspects[-NAMED:])
    more = f" and {len(suspects) - NAMED} before" if len(suspects) > NAMED else ""
    message = f"{what}, found while {doing}" + (f"; issued since the last wait: {shown}{more}" if suspects else "")
    return DeviceFault(
        message, code="KG601", help=f"{found.help}; run with --sync-each to find the kernel", details=details
    )
