"""Modules that others import and seldom use: there at once, run when something of them is called or looked at."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import Any


def import_late(name: str) -> None:
    """Have `name` stand in `sys.modules`; its code runs with the first use, in whatever thread that is.

    A function may be imported from it before that: what stands for it runs the module when it is called. Public names
    in lower case are taken for functions. `importlib.util.LazyLoader` does not serve here: whoever imports a module
    looks at its `__spec__`, which counts as a use there. Nothing happens where the module is there already, or does not
    exist.
    """
    spec = None if name in sys.modules else find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader, lock, running = spec.loader, RLock(), False

    def run(module: ModuleType) -> None:
        """Run the module's code, unless that was done or goes on; other threads wait for it at the lock."""
        nonlocal running
        with lock:
            if type(module) is Late and not running:
                running = True
                try:
                    loader.exec_module(module)
                    module.__class__ = ModuleType  # type: ignore[assignment]
                finally:
                    running = False

    class Late(ModuleType):
        def __getattr__(self, attribute: str) -> Any:
            if not (attribute.startswith("__") and attribute.endswith("__")):
                with lock:
                    if attribute.islower() and not attribute.startswith("_") and type(self) is Late and not running:
                        return lambda *arguments, **options: _of(self, attribute)(*arguments, **options)
                    run(self)
                    if attribute in self.__dict__:
                        return self.__dict__[attribute]
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")

    def _of(module: ModuleType, attribute: str) -> Any:
        run(module)
        return getattr(module, attribute)

    made = Late(name)
    made.__spec__, made.__loader__, made.__package__, made.__file__ = spec, loader, spec.parent, spec.origin
    if spec.submodule_search_locations is not None:
        made.__path__ = spec.submodule_search_locations
    sys.modules[name] = made
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, made)
