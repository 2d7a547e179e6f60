"""Kernels with numpy references, by theme."""

from tests.runtime.compile.ptx.corpus import arithmetic, cooperation, language, samples

CASES = [*arithmetic.CASES, *cooperation.CASES, *language.CASES, *samples.CASES]
