"""ONNX's own suite, every test of it: `python -m pytest tests/conformance -m slow`. Tests for CUDA run where a GPU is.

scripts/conformance.py counts the same tests by operator.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from scripts.conformance import RANDOM, RTOL

pytest.importorskip("onnx")

from .backend import KgrunBackend

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def _suite() -> dict[str, Any]:
    from onnx.backend.test import BackendTest

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite = BackendTest(KgrunBackend, __name__, test_kwargs={name: {"rtol": rtol} for name, rtol in RTOL.items()})
    suite.exclude(r"test_(\w+)_cuda$" if not KgrunBackend.supports_device("CUDA") else r"$^")
    suite.exclude(RANDOM.pattern)
    suite.exclude(r"test_loop16_seq_none")  # the suite cannot compare its sequence, which begins with a scalar
    # These write to the user's home folder, and their weights are all the same number.
    return {name: case for name, case in suite.test_cases.items() if name != "OnnxBackendRealModelTest"}


globals().update(_suite())
