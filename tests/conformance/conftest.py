"""ONNX's own suite is slow to load: it is not even collected where slow tests are left out."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if "not slow" in str(config.getoption("markexpr")) else None
