"""A compiled extension that is not of this version of the code is left alone: numpy and Python do the same."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace
from typing import Any

import pytest


def loaded_with(package: str, extension: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A fresh copy of the package's `native` module that finds `extension`."""
    home = importlib.import_module(package)
    monkeypatch.setattr(home, "_native", extension, raising=False)
    monkeypatch.setitem(sys.modules, f"{package}._native", extension)
    spec = importlib.util.find_spec(f"{package}.native")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("package", ["kgrun.runtime.hostloops", "kgrun.runtime.memory.packing"])
def test_an_old_build_is_as_good_as_none(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KGRUN_NATIVE", raising=False)
    older = SimpleNamespace(interface=lambda: 0, answer=lambda: 42)
    assert not loaded_with(package, older, monkeypatch).available()
    assert not loaded_with(package, SimpleNamespace(answer=lambda: 42), monkeypatch).available()
    number = importlib.import_module(f"{package}.native").INTERFACE
    current = loaded_with(package, SimpleNamespace(interface=lambda: number, answer=lambda: 42), monkeypatch)
    assert current.available()
    assert current.call("answer") == 42
