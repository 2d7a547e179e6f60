"""Kernels with numpy references, by theme."""

from tests.runtime.compile.ptx.corpus import arithmetic

CASES = [*arithmetic.CASES]
