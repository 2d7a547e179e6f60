"""Which session runs a graph: planned as a whole, or node by node where the run decides what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgrun.graphs.bind.unsupported import RunTimeOnly, refused
from kgrun.graphs.control import run_time_reason
from kgrun.graphs.errors import UsageError
from kgrun.graphs.operators.base import ValueUnknown
from kgrun.runtime.session import Session

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.eager.session import EagerSession

SINGLE = "single"
# A plan gives outputs the same bytes in every run as it is.
_EAGER_ONLY = ("reuse_outputs",)


def open_session(graph: KernelGraph, *, memory: str = "planned", **settings: Any) -> Session | EagerSession:
    """A session for `graph`: node by node with `memory="single"`, and for graphs that cannot be planned.

    Args:
        memory: "planned", "none" or "single".
        settings: as `Session` and `EagerSession` have them; those of the other kind mean nothing.

    Raises:
        UsageError: KG240 for checks or skipped kernels of a graph that runs node by node.
        KgrunError: as the sessions do.
    """
    reason = run_time_reason(graph)
    if memory != SINGLE and reason is None:
        planned = {key: value for key, value in settings.items() if key not in _EAGER_ONLY}
        try:
            return Session(graph, memory=memory, **planned)  # type: ignore[arg-type]  # the user's word was checked
        except (RunTimeOnly, ValueUnknown) as error:  # binding comes first: nothing was opened
            reason = error.message
    why = reason or "--memory single asks for it"
    for name, option in (("checks", "--check"), ("allow_skip", "--allow-skip")):
        if settings.get(name):
            raise UsageError(f"{option} needs a planned run, and the graph runs node by node", code="KG240", help=why)
    for fault in refused(graph, run_time=True):  # also of a graph that could be planned
        raise fault
    from inspect import signature

    from kgrun.runtime.eager.session import EagerSession

    known = signature(EagerSession).parameters
    own = {key: value for key, value in settings.items() if key in known}
    return EagerSession(graph, reason=reason if memory != SINGLE else None, **own)
