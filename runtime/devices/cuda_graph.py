"""Steps as one CUDA graph: captured once with the dependencies they truly have, then replayed with a single call.

PyCUDA launches on one stream are captured through cuda-bindings. Before each step the capture's dependency set is
replaced by the steps it must wait for, so independent steps may overlap although they were issued on one stream. After
the capture the edges are audited: libraries may leave programmatic edges, by which their kernels start before the
preceding step has ended and read stale data; every such edge between steps becomes a full one. Inside one call of a
library its kernels know each other: those edges stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kgrun.runtime.devices.cuda_driver import DriverCallFailed

Node = Any


def _api() -> Any:
    from cuda.bindings import driver

    return driver


def _call(name: str, *arguments: Any) -> Any:
    """A driver call through cuda-bindings; its results without the status, DriverCallFailed when that is an error."""
    status, *results = getattr(_api(), name)(*arguments)
    if int(status) != 0:
        raise DriverCallFailed(f"{name} failed: {_describe(status)}")
    return results[0] if len(results) == 1 else results


def _describe(status: Any) -> str:
    code, text = _api().cuGetErrorString(status)
    words = text.decode() if int(code) == 0 and isinstance(text, bytes) else ""
    return f"{words} ({int(status)})" if words else f"error {int(status)}"


class GraphReplay:
    """A captured graph, ready to run.

    Attributes:
        nodes: how many nodes it has.
        replaced_edges: programmatic edges that the audit made full.

    Args:
        ends: the last nodes of each step.
    """

    def __init__(self, stream: int, graph: Any, ends: Sequence[Node]) -> None:
        self._stream = _api().CUstream(stream)  # made once: a launch should cost the host little
        self._graph = graph
        self._exec: Any = None
        try:
            self.replaced_edges = _replace_programmatic_edges(graph, {int(node) for node in ends})
            self.nodes = len(_nodes(graph))
            self._exec = _call("cuGraphInstantiate", graph, 0)
            _call("cuGraphUpload", self._exec, stream)
        except BaseException:
            self.close()
            raise
        self._launch = _api().cuGraphLaunch

    def launch(self) -> None:
        """Run the whole graph; returns before it ends. DriverCallFailed when the driver refuses it."""
        (status,) = self._launch(self._exec, self._stream)
        if int(status) != 0:
            raise DriverCallFailed(f"cuGraphLaunch failed: {_describe(status)}")

    def close(self) -> None:
        """Destroy the graph; silent, may be called twice."""
        api = _api()
        if self._exec is not None:
            api.cuGraphExecDestroy(self._exec)
            self._exec = None
        if self._graph is not None:
            api.cuGraphDestroy(self._graph)
            self._graph = None


def capture(stream: int, issue: Sequence[Callable[[], Any]], after: Sequence[Sequence[int]]) -> GraphReplay:
    """Capture calls that launch work on `stream`.

    Args:
        issue: one call a step, in issue order.
        after: for each step the earlier steps it must wait for; none starts at once.

    Raises:
        DriverCallFailed: a call cannot be captured. Whatever `issue` raises is passed on; the capture is ended first.
    """
    api = _api()
    _call("cuStreamBeginCapture", api.CUstream(stream), api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    tails: list[list[Node]] = []
    try:
        for call, before in zip(issue, after, strict=True):
            wanted = _unique([node for step in before for node in tails[step]])
            _set_dependencies(stream, wanted)
            call()
            tails.append(_tail(stream))
        # Leaves need no join: a graph has ended when all its nodes have. But the capture must end on one of them.
        _set_dependencies(stream, _unique([node for tail in tails for node in tail]))
    except BaseException:
        _abandon(stream)
        raise
    ends = [node for tail in tails for node in tail]
    return GraphReplay(stream, _call("cuStreamEndCapture", api.CUstream(stream)), ends)


def _set_dependencies(stream: int, nodes: Sequence[Node]) -> None:
    api = _api()
    flag = int(api.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES)
    _call("cuStreamUpdateCaptureDependencies", api.CUstream(stream), list(nodes), None, len(nodes), flag)


def _tail(stream: int) -> list[Node]:
    """The nodes that the next captured call would depend on."""
    api = _api()
    _status, _id, _graph, nodes, _edges, count = _call("cuStreamGetCaptureInfo", api.CUstream(stream))
    return list(nodes or ())[:count]


def _unique(nodes: Sequence[Node]) -> list[Node]:
    return list({int(node): node for node in nodes}.values())


def _abandon(stream: int) -> None:
    """End a capture that failed, and drop what it made."""
    api = _api()
    status, graph = api.cuStreamEndCapture(api.CUstream(stream))
    if int(status) == 0 and graph is not None and int(graph) != 0:
        api.cuGraphDestroy(graph)


def _nodes(graph: Any) -> list[Node]:
    _, count = _call("cuGraphGetNodes", graph, 0)
    nodes, _ = _call("cuGraphGetNodes", graph, count)
    return list(nodes or ())[:count]


def _replace_programmatic_edges(graph: Any, ends: set[int]) -> int:
    """Make every edge from the end of a step a full dependency; returns how many were not.

    None of kgrun's own kernels starts early: no programmatic edge between steps leads into one that was written for it.
    """
    api = _api()
    *_, count = _call("cuGraphGetEdges", graph, 0)
    if not count:
        return 0
    sources, targets, data, _ = _call("cuGraphGetEdges", graph, count)
    full = int(api.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_DEFAULT)
    found = [i for i in range(count) if int(data[i].type) != full and int(sources[i]) in ends]
    for i in found:
        _call("cuGraphRemoveDependencies", graph, [sources[i]], [targets[i]], [data[i]], 1)
        _call("cuGraphAddDependencies", graph, [sources[i]], [targets[i]], None, 1)
    return len(found)
