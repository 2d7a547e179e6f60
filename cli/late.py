"""Modules that others import and seldom use: there at once, run when something of them is called or looked at."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def import_late(name: str) -> None:
    """Have `name` stand in `sys.modules`; its code runs with the first use.

    A function may be imported from it before that: what stands for it runs the module when it is called. Names in lower
    case are taken for functions. `importlib.util.LazyLoader` does not serve here: whoever imports a module looks at its
    `__spec__`, which counts as a use there. Nothing happens where the module is there already, or does not exist.
    """
    spec = None if name in sys.modules else find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader = spec.loader

    class Late(ModuleType):
        def __getattr__(self, attribute: str) -> Any:
            if attribute.startswith("__") and attribute.endswith("__"):
                raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
            if attribute.islower():
                return lambda *arguments, **options: getattr(_run(self), attribute)(*arguments, **options)
            return getattr(_run(self), attribute)

    def _run(module: ModuleType) -> ModuleType:
        if type(module) is Late:
            module.__class__ = ModuleType  # type: ignore[assignment]  # first: its own code may look at it
            loader.exec_module(module)
        return module

    made = Late(name)
    made.__spec__, made.__loader__, made.__package__, made.__file__ = spec, loader, spec.parent, spec.origin
    if spec.submodule_search_locations is not None:
        made.__path__ = spec.submodule_search_locations
    sys.modules[name] = made
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, made)
