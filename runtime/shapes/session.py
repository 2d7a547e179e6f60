"""A graph whose dimensions change from run to run: programs, plans and captured graphs kept by dimensions.

with ShapeSession(graph, device="cuda") as session:
    for x in batches:                      # of different lengths
        y = session({"x": x})["y"]
    print(session.statistics)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kgrun.graphs.bind.dims import bind_dims, dims_from_shapes
from kgrun.graphs.bind.given import bind_given
from kgrun.graphs.bound import Warning
from kgrun.graphs.errors import GraphError, UsageError
from kgrun.graphs.schema.kinds import is_dim
from kgrun.runtime.devices import device_for
from kgrun.runtime.devices.base import Device
from kgrun.runtime.host_data import Array, check_names, closed_session
from kgrun.runtime.infer import infer
from kgrun.runtime.report import RunReport
from kgrun.runtime.session import Session
from kgrun.runtime.shapes.padding import padded_axes
from kgrun.runtime.shapes.share import Arena, Arenas, ShapeShare

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph


Key = tuple[object, ...]


@dataclass(slots=True)
class ShapeStatistics:
    """Runs that found their shape kept, shapes that were bound and planned, and shapes given up for others."""

    hits: int = 0
    plans: int = 0
    evictions: int = 0


@dataclass(slots=True, eq=False)
class _Kept:
    session: Session
    arena: Arena | None
    shared: frozenset[str]  # parameters that lie with the owner


class ShapeSession:
    """One graph on one device at many shapes. A context manager.

    Shapes of given inputs bind the dimensions. A dimension with `buckets` is rounded up to the next of them where the
    graph can be padded along it (`runtime.shapes.padding`): inputs are filled up with zeros, outputs are cut. Above its
    largest bucket it is taken as it is.

    Args:
        graph, device: as `Session` has them.
        dims: values of dimensions that no input tells.
        capacity: shapes to keep; the one used longest ago is given up for a new one. The first stays: it holds the
            parameters, which all shapes share.
        settings: further arguments of `Session`.

    Attributes:
        statistics: hits, plans, evictions.
        unpadded: why a dimension with buckets is taken as it is, by its name.

    Raises:
        KgrunError: any of its kinds; nothing stays allocated.
    """

    def __init__(
        self,
        graph: KernelGraph,
        *,
        device: str | Device = "auto",
        dims: Mapping[str, int] | None = None,
        capacity: int = 64,
        precision: Any = "float32",
        **settings: Any,
    ) -> None:
        if capacity < 1:
            raise UsageError(f"a capacity of {capacity} keeps no shape", code="KG200")
        self.graph, self._dims, self._capacity = graph, dict(dims or {}), capacity
        self._settings = settings
        self.statistics = ShapeStatistics()
        self._closed = False
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._owner: Session | None = None
        self._shape_values: tuple[str, ...] = ()  # integer inputs whose elements decide shapes
        self._buckets = {
            name: sorted(spec.buckets) for name, spec in graph.dims.items() if is_dim(spec) and spec.buckets
        }
        self.unpadded: dict[str, str] = {}
        self._axes: dict[str, dict[str, int]] = {}
        with ExitStack() as undo:
            self.device, self.fallback_reason = device_for(device, undo, precision=precision)
            self._arenas = Arenas(self.device)
            undo.callback(self._close_kept)
            self._undo = undo.pop_all()

    @property
    def warnings(self) -> tuple[Warning, ...]:
        """A warning for each dimension whose buckets are not used."""
        return tuple(
            Warning("W-NO-BUCKET", f"{name} is not rounded up: {why}", ("dims", name, "buckets"))
            for name, why in self.unpadded.items()
        )

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for `inputs`: one run, neither timed nor reported.

        Raises:
            UsageError: dimensions unbound, unknown or out of range; an input that the graph has not.
            GraphError: inputs that do not fit. KgrunError: faults of the device.
        """
        dims, rounded, session = self._session(inputs)
        if not self._axes:
            return infer(session, inputs)
        return self._cut(infer(session, self._padded(inputs, dims, rounded)), dims)

    def run(
        self, inputs: Mapping[str, Array] | None = None, *, dims: Mapping[str, int] | None = None, **loop: Any
    ) -> RunReport:
        """As `Session.run`, at the shapes of `inputs`; padded outputs are cut, times are those of the bucket.

        Args:
            dims: dimensions of this run, where its inputs do not tell them.
        """
        given = inputs or {}
        dims, rounded, session = self._session(given, dims)
        report = session.run(self._padded(given, dims, rounded), **loop)
        warnings = (*report.warnings, *self.warnings)
        return replace(report, outputs=self._cut(report.outputs, dims), warnings=warnings)

    def _session(
        self, inputs: Mapping[str, Array], more: Mapping[str, int] | None = None
    ) -> tuple[dict[str, int], dict[str, int], Session]:
        """The dimensions that the inputs tell, the same rounded up to buckets, and the session for these."""
        if self._closed:
            raise closed_session()
        check_names(self.graph, inputs)
        dims = dims_from_shapes(self.graph, {name: array.shape for name, array in inputs.items()})
        dims.update({**self._dims, **(more or {})})
        if self._buckets and not (self._axes or self.unpadded):
            self._find_padding(dims)
        rounded = {name: self._rounded(name, value) for name, value in dims.items()} if self._axes else dims
        key: Key = tuple(sorted(rounded.items()))
        if self._shape_values:
            key += tuple(inputs[name].tobytes() if name in inputs else None for name in self._shape_values)
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            self.statistics.hits += 1
        else:
            bind_dims(self.graph, dims)  # a size out of range is told as it was given
            kept = self._plan(key, rounded, self._padded(inputs, dims, rounded))
        if self._owner is not None and (theirs := {name: inputs[name] for name in kept.shared if name in inputs}):
            self._owner.take_inputs(theirs)
        return dims, rounded, kept.session

    def _plan(self, key: Key, dims: dict[str, int], inputs: Mapping[str, Array]) -> _Kept:
        share = ShapeShare(self._owner)
        session = Session(self.graph, device=self.device, dims=dims, values=inputs, share=share, **self._settings)
        try:
            arena = self._arenas.take(session.planned_memory.dynamic_bytes)
            share.arena = None if arena is None else arena.address
            session.start()
        except BaseException:
            session.close()
            self._arenas.drop_unused()
            raise
        self.statistics.plans += 1
        if self._owner is None:
            self._owner = session
            self._shape_values = tuple(sorted(session.bound.values))
        while len(self._kept) >= self._capacity and self._give_up_oldest():
            pass
        kept = self._kept[key] = _Kept(session, arena, share.shared)
        return kept

    def _give_up_oldest(self) -> bool:
        """Give up the shape used longest ago, the owner apart; False where there is none."""
        for key, kept in self._kept.items():
            if kept.session is not self._owner:
                del self._kept[key]
                kept.session.close()
                self._arenas.release(kept.arena)
                self.statistics.evictions += 1
                return True
        return False

    def _rounded(self, name: str, value: int) -> int:
        if name not in self._axes:
            return value
        return next((bucket for bucket in self._buckets[name] if bucket >= value), value)

    def _find_padding(self, dims: Mapping[str, int]) -> None:
        """Which tensors are padded along which axis, for each dimension with buckets; or why it is taken as it is."""
        for name, buckets in self._buckets.items():
            if name not in dims:
                self.unpadded[name] = "no input tells it"
                continue
            sizes = sorted({*buckets, dims[name], max(buckets[0] - 1, 1)})
            try:
                bound = [bind_given(self.graph, {**dims, name: size}, {}) for size in sizes[:3]]
            except (GraphError, UsageError) as error:
                self.unpadded[name] = error.message
                continue
            found = [padded_axes(small, bound[-1], name) for small in bound[:-1]] or ["it has one size only"]
            reason = next((each for each in found if isinstance(each, str)), None)
            if reason is not None:
                self.unpadded[name] = reason
            elif any(each != found[0] for each in found):
                self.unpadded[name] = "its axes change with its size"
            else:
                self._axes[name] = dict(found[0])  # type: ignore[arg-type]  # no reason is among them

    def _padded(
        self, inputs: Mapping[str, Array], dims: Mapping[str, int], rounded: Mapping[str, int]
    ) -> dict[str, Array]:
        """The inputs filled up with zeros to the rounded sizes."""
        made = dict(inputs)
        for dim, axes in self._axes.items():
            if dims.get(dim) == rounded.get(dim):
                continue
            for name, axis in axes.items():
                if name in made:
                    array = made[name]
                    filled = np.zeros((*array.shape[:axis], rounded[dim], *array.shape[axis + 1 :]), array.dtype)
                    filled[(slice(None),) * axis + (slice(array.shape[axis]),)] = array
                    made[name] = filled
        return made

    def _cut(self, outputs: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """The outputs without what padding added."""
        made = dict(outputs)
        for dim, axes in self._axes.items():
            for name, axis in axes.items():
                if name in made and dim in dims and made[name].shape[axis] != dims[dim]:
                    made[name] = made[name][(slice(None),) * axis + (slice(dims[dim]),)]
        return made

    def _close_kept(self) -> None:
        """Close all sessions, the one with the parameters last."""
        for kept in self._kept.values():
            if kept.session is not self._owner:
                kept.session.close()
        if self._owner is not None:
            self._owner.close()
        for kept in self._kept.values():
            self._arenas.release(kept.arena)
        self._kept.clear()

    def close(self) -> None:
        """Free memory and release the device; may be called twice."""
        self._closed = True
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
