"""Planned offload: which tensors wait on the host, when they go and come back, and what that costs.

`fit` is the entry: a program and a limit in, a program with transfers and its memory plan out.
"""

from __future__ import annotations
