"""One plain run of a session: inputs in, outputs out, nothing measured and nothing reported."""

from __future__ import annotations

from collections.abc import Mapping

from kgrun.runtime.culprit import blaming
from kgrun.runtime.host_data import Array
from kgrun.runtime.session import Session


def infer(session: Session, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run once; the outputs by name.

    Args:
        inputs: arrays by name; those left out keep their last value, their data or their init.

    Raises:
        KgrunError: for inputs that do not fit and for faults of the device.
    """
    session.take_inputs(inputs)
    with blaming(lambda: session.program):
        session.runner.issue()
        session.device.synchronize()
    return {name: session.output(name) for name in session.bound.outputs}
