"""How a graph runs: lower it, plan its memory, execute it on a device, measure it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgrun.graphs.late import late_names

if TYPE_CHECKING:
    from kgrun.runtime.parameters import load_parameters, save_parameters
    from kgrun.runtime.session import Session

__all__ = ["Session", "load_parameters", "save_parameters"]

# Late, so that importing a part of the runtime does not import numpy.
__getattr__ = late_names(__name__, {"session": "Session", "parameters": "load_parameters save_parameters"})
