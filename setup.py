"""The optional C extensions: the memory planner's, and loops over host memory; all else stands in pyproject.toml.

Without a compiler the package installs all the same and does both in Python and numpy. To build them into the source
folders: `python setup.py build_ext --inplace`.
"""

import os

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKING, LOOPS = "runtime/memory/packing", "runtime/hostloops"
SOURCES = ["gaps", "module", "outward", "overlap", "search", "sections", "skyline"]
OPTIONS = {"extra_compile_args": ["-O3"] if os.name == "posix" else [], "py_limited_api": True, "optional": True}


class BuildExtension(build_ext):
    """Puts an in-place build beside the sources: `kgrun` is a namespace that no folder of that name stands for."""

    def get_ext_fullpath(self, ext_name: str) -> str:
        if not self.inplace:
            return str(super().get_ext_fullpath(ext_name))
        package, _, last = ext_name.rpartition(".")
        name = os.path.basename(self.get_ext_filename(last))
        return os.path.join(os.path.dirname(os.path.abspath(__file__)), *package.split(".")[1:], name)


setup(
    ext_modules=[
        Extension(
            "kgrun.runtime.memory.packing._native",
            [f"{PACKING}/csource/{name}.c" for name in SOURCES],
            depends=[f"{PACKING}/csource/packing.h"],
            **OPTIONS,
        ),
        Extension("kgrun.runtime.hostloops._native", [f"{LOOPS}/csource/module.c"], **OPTIONS),
    ],
    cmdclass={"build_ext": BuildExtension},
)
