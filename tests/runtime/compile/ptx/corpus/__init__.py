"""Kernels with numpy references, by theme, and kernels with planted bugs."""

from tests.runtime.compile.ptx.corpus import (
    arithmetic,
    cooperation,
    floating,
    language,
    matrices,
    memory_bugs,
    samples,
    thread_bugs,
)

CASES = [
    *arithmetic.CASES,
    *floating.CASES,
    *cooperation.CASES,
    *matrices.CASES,
    *language.CASES,
    *samples.CASES,
]
BUGS = [*memory_bugs.BUGS, *thread_bugs.BUGS]
