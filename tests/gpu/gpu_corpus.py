"""The corpus of kernels that the CPU device is tested with, on a GPU: one launch of each, compared with numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.program import Value
from tests.gpu.gpu_run import run_kernel
from tests.runtime.compile.ptx.harness import Case, dims


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far a GPU's results are from numpy's.

    Attributes:
        elements: compared.
        wrong: elements that differ at all (integers) or by more than the case's tolerance (floats).
        worst: largest share of what the tolerance allows; above 1 is wrong. 0 for integers.
    """

    name: str
    elements: int
    wrong: int
    worst: float

    @property
    def ok(self) -> bool:
        return self.wrong == 0


def run_case(device: CudaDevice, case: Case) -> Comparison:
    """Launch a case on the GPU and compare every array that it says something of."""
    args = case.args()
    before = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
    results = run_kernel(
        device,
        case.source,
        [_argument(arg) for arg in args],
        entry=case.entry,
        grid=dims(case.grid),
        block=dims(case.block),
        name=case.name,
        options=case.options,
        shared=case.shared,
    )
    places = [place for place, arg in enumerate(args) if isinstance(arg, np.ndarray)]
    elements = wrong = 0
    worst = 0.0
    for place, want in case.expect(*before).items():
        got = results[places.index(place)]
        elements += got.size
        if got.dtype.kind in "iub":
            wrong += int(np.count_nonzero(got != want))
            continue
        share = _share(got.astype(np.float64), np.asarray(want, np.float64), case)
        wrong += int(np.count_nonzero(~(share <= 1)))
        worst = max(worst, float(np.nan_to_num(share, nan=np.inf).max(initial=0)))
    return Comparison(case.name, elements, wrong, worst)


def _argument(arg: Any) -> Any:
    if isinstance(arg, np.ndarray):
        return arg
    return Value(arg, 8) if isinstance(arg, bytes) else Value(arg.tobytes(), arg.itemsize)


def _share(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], case: Case) -> np.ndarray[Any, Any]:
    """Each element's distance as a share of what is allowed; equal ones, NaN and infinity among them, have none."""
    with np.errstate(all="ignore"):
        distance, allowed = np.abs(got - want), case.atol + case.rtol * np.abs(want)
        share = np.where(distance == 0, 0.0, distance / allowed)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0.0, share)
