"""Access to the optional C extension; everything it does exists in numpy too, with the same results."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

try:
    from . import _native as _compiled  # type: ignore[attr-defined,unused-ignore]
except ImportError:
    _compiled = None

INTERFACE = 3  # of csource/module.c

_module: ModuleType | None = _compiled
if _module is not None and getattr(_module, "interface", int)() != INTERFACE:
    _module = None  # an old build in a newer checkout: as if there were none


def available() -> bool:
    """Whether the compiled code is there and not switched off by KGRUN_NATIVE=0."""
    return _module is not None and os.environ.get("KGRUN_NATIVE", "1") != "0"


def call(name: str, *arguments: Any) -> Any:
    """Call a function of the extension; only after `available()`."""
    return getattr(_module, name)(*arguments)
