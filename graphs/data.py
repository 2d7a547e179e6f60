"""Arrays of a graph, from files, values and rules. Importing this imports no numpy; using most of it does."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgrun.graphs.data_arrays import numpy_dtype, string_array, value_array
    from kgrun.graphs.data_files import array_type, load_array
    from kgrun.graphs.data_init import initial_array
    from kgrun.graphs.data_inputs import load_inputs
    from kgrun.graphs.data_paths import inside, parse_reference
    from kgrun.graphs.data_save import file_name, save_bytes, save_npy, save_npz, save_safetensors
    from kgrun.graphs.data_values import constant_value

__all__ = [
    "array_type",
    "constant_value",
    "file_name",
    "initial_array",
    "inside",
    "load_array",
    "load_inputs",
    "numpy_dtype",
    "parse_reference",
    "save_bytes",
    "save_npy",
    "save_npz",
    "save_safetensors",
    "string_array",
    "value_array",
]

_HOMES = {
    "data_arrays": ("numpy_dtype", "string_array", "value_array"),
    "data_files": ("array_type", "load_array"),
    "data_init": ("initial_array",),
    "data_inputs": ("load_inputs",),
    "data_paths": ("inside", "parse_reference"),
    "data_save": ("file_name", "save_bytes", "save_npy", "save_npz", "save_safetensors"),
    "data_values": ("constant_value",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"kgrun.graphs.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
