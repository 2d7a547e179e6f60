"""Names that packages import late: all are there, and others are not."""

from __future__ import annotations

from importlib import import_module

import pytest

PACKAGES = [
    "graphs", "graphs.load", "runtime", "runtime.checks", "runtime.dump", "runtime.memory.pool", "runtime.queues",
    "runtime.repro",
]  # fmt: skip


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_found_and_no_other(package: str) -> None:
    module = import_module(f"kgrun.{package}")
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"module 'kgrun.{package}' has no attribute 'nothing_of_it'"):
        _ = module.nothing_of_it


def test_a_package_imports_its_modules_when_they_are_asked_for() -> None:
    from kgrun.graphs.late import late_names

    find = late_names("json", {"nowhere": "Gone", "decoder": "JSONDecoder JSONDecodeError"})
    assert find("JSONDecodeError").__module__ == "json.decoder"
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        find("Gone")
