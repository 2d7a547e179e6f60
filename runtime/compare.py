"""Compare outputs with expected arrays, element by element, with tolerances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kgrun.graphs.errors import UsageError, did_you_mean
from kgrun.runtime.report import Comparison

Array = np.ndarray[Any, Any]


def compare(
    outputs: Mapping[str, Array], expected: Mapping[str, Array], rtol: float, atol: float, equal_nan: bool = False
) -> list[Comparison]:
    """One Comparison an expected array: |output - expected| ≤ atol + rtol·|expected|, integers exactly.

    Raises:
        UsageError: KG212 for an expected name that is no output, or for no expected array at all.
    """
    if not expected:
        raise UsageError("the file of expected outputs holds no array", code="KG212")
    rows = []
    for name, wanted in expected.items():
        if name not in outputs:
            raise UsageError(
                f"expected {name!r} is no output of the graph",
                code="KG212",
                help=did_you_mean(name, outputs) or f"outputs: {', '.join(outputs)}",
            )
        rows.append(_compare(name, outputs[name], wanted, rtol, atol, equal_nan))
    return rows


def _compare(name: str, got: Array, wanted: Array, rtol: float, atol: float, equal_nan: bool) -> Comparison:
    if got.shape != wanted.shape:
        reason = f"shape {list(got.shape)}, expected {list(wanted.shape)}"
        return Comparison(name, False, int(got.size), int(got.size), None, None, reason)
    exact = got.dtype.kind in "iub" and wanted.dtype.kind in "iub"
    if exact:
        wrong = got != wanted
        difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
        scale = np.abs(wanted.astype(np.float64))
    else:
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(all="ignore"):
            scale = np.abs(b)
            difference = np.abs(a - b)
            wrong = ~((difference <= atol + rtol * scale) | (a == b))
            if equal_nan:
                wrong &= ~(np.isnan(a) & np.isnan(b))
    count = int(np.count_nonzero(wrong))
    finite = np.isfinite(difference)
    with np.errstate(all="ignore"):
        relative = difference[finite & (scale > 0)] / scale[finite & (scale > 0)]
    return Comparison(
        name=name,
        ok=count == 0,
        mismatched=count,
        size=int(got.size),
        max_abs=float(difference[finite].max()) if finite.any() else None,
        max_rel=float(relative.max()) if relative.size else None,
        reason=None if count == 0 else f"{count} of {got.size} elements differ",
    )
