"""Dumps of a run node by node: tensors of the whole graph, written when they are made or first read."""

from __future__ import annotations

from time import perf_counter_ns

from kgrun.runtime.dump.writer import Dump
from kgrun.runtime.eager.body import Body
from kgrun.runtime.eager.store import Store, Tensor


class EagerDump:
    """Called with each tensor of the whole graph, as it is made or first read.

    Attributes:
        iteration: that runs, counted from 0.
        spent_ns: on writing so far.
    """

    def __init__(self, dump: Dump, body: Body, store: Store) -> None:
        self.dump, self._store = dump, store
        nodes = [
            (node.name, [n for n in names if n is not None], [n for n in node.outputs if n is not None])
            for node, names in zip(body.graph.nodes, body.links.inputs, strict=True)
        ]
        tensors = dict.fromkeys([*body.graph.tensors, *(name for _, _, made in nodes for name in made)])
        self._wanted = dump.wanted_of(nodes, tensors)
        self._done: set[str] = set()
        self.iteration = 0
        self.spent_ns = 0

    def start(self, iteration: int) -> None:
        """A run begins."""
        self.iteration = iteration
        self._done.clear()

    def __call__(self, name: str, tensor: Tensor) -> None:
        """Write it where it is wanted, once a run."""
        if name not in self._wanted or name in self._done or not self.dump.wants_iteration(self.iteration):
            return
        started = perf_counter_ns()
        self._done.add(name)
        self.dump.write(self.iteration, name, self._store.download(tensor))
        self.spent_ns += perf_counter_ns() - started
