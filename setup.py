"""The optional C extension of the memory planner; all else about the package stands in pyproject.toml.

Without a compiler the package installs all the same and plans in pure Python. To build the extension into the
source folders: `python setup.py build_ext --inplace`.
"""

import os

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = "runtime/memory/packing"
SOURCES = ["gaps", "module", "outward", "overlap", "search", "sections", "skyline"]


class BuildExtension(build_ext):
    """Puts an in-place build beside the sources: `kgrun` is a namespace that no folder of that name stands for."""

    def get_ext_fullpath(self, ext_name: str) -> str:
        if not self.inplace:
            return str(super().get_ext_fullpath(ext_name))
        name = os.path.basename(self.get_ext_filename(ext_name.rpartition(".")[2]))
        return os.path.join(os.path.dirname(os.path.abspath(__file__)), FOLDER, name)


setup(
    ext_modules=[
        Extension(
            "kgrun.runtime.memory.packing._native",
            [f"{FOLDER}/csource/{name}.c" for name in SOURCES],
            depends=[f"{FOLDER}/csource/packing.h"],
            extra_compile_args=["-O3"] if os.name == "posix" else [],
            py_limited_api=True,
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
