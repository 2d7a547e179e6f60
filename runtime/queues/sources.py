"""Batches of a queue, from files, arrays or Python: sliced along axis 0, in order or shuffled, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.errors import GraphError, UsageError
from kgrun.graphs.operators.base import TensorType
from kgrun.graphs.records import dataclass
from kgrun.runtime.queues.picked import Picked
from kgrun.runtime.queues.settings import SETTINGS, QueueSettings

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]
    Batch = Sequence[Array | Picked]


_OFTEN = 16  # epochs after which pinning an array has cost less than copying its batches


@dataclass(frozen=True, slots=True)
class Batches:
    """Where batches come from.

    Attributes:
        count: how many there are in all; None where that is not known, or where there is no end.
        endless: whether there is no end.
        start: an iterator over them, from the first.
        held: arrays that stay as they are, of which batches are slices, so often that preparing them is worth it.
    """

    count: int | None
    endless: bool
    start: Callable[[], Iterator[Any]]
    held: tuple[Array, ...] = ()


@dataclass(frozen=True, slots=True)
class _Shard:
    """Samples that are read together: `read` gives one array an item, `rows` long."""

    rows: int
    read: Callable[[], tuple[Array, ...]]


def open_batches(name: str, types: Mapping[str, TensorType], settings: QueueSettings) -> Batches:
    """The batches of queue `name`, whose items are of `types`.

    Raises:
        GraphError: KG372 to KG375 for files, KG394 for data that do not fit the items, KG396 for a last batch that is
            not full although it should be.
        UsageError: KG274 for a source that cannot be, or cannot be gone through again.
    """
    source = settings.source
    if isinstance(source, str | Path):
        shards = _file_shards(Path(source), settings.where, types)
    elif isinstance(source, Mapping):
        shards = [_array_shard(source, settings.where, types)]
    else:
        return _python_batches(name, source, settings)
    size = next(iter(types.values())).shape[0]
    total = sum(shard.rows for shard in shards)
    full, rest = divmod(total, size)
    if rest and settings.last == "error":
        raise GraphError(
            f"queue {name!r}: {total:,} samples are {full:,} batches of {size:,} and {rest:,} more",
            code="KG396",
            help="last: drop leaves them out, last: pad fills the batch up",
        )
    each = full + (1 if rest and settings.last == "pad" else 0)
    if each == 0:
        raise GraphError(
            f"queue {name!r}: {total:,} samples are not one batch of {size:,}",
            code="KG394",
            help=None if total == 0 else "last: pad fills it up",
        )
    count = each * settings.epochs or None
    often = settings.epochs == 0 or settings.epochs >= _OFTEN
    keeps = isinstance(source, Mapping) and settings.shuffle is None and often
    held = tuple(np.asarray(source[name]) for name in types) if keeps else ()
    return Batches(count, settings.epochs == 0, lambda: _epochs(shards, size, settings), held)


def _epochs(shards: Sequence[_Shard], size: int, settings: QueueSettings) -> Iterator[Batch]:
    @lru_cache(maxsize=2)
    def read(index: int) -> tuple[Array, ...]:
        return shards[index].read()

    epoch = 0
    while settings.epochs == 0 or epoch < settings.epochs:
        generator = None if settings.shuffle is None else np.random.default_rng([settings.shuffle, epoch])
        yield from _epoch(shards, read, size, generator, settings.last == "pad")
        epoch += 1


def _epoch(
    shards: Sequence[_Shard],
    read: Callable[[int], tuple[Array, ...]],
    size: int,
    generator: np.random.Generator | None,
    pad: bool,
) -> Iterator[Batch]:
    """One epoch's batches. A shuffle puts the shards, and the samples within each, in another order."""
    order = range(len(shards)) if generator is None else generator.permutation(len(shards))
    rest: list[Array] | None = None  # samples of earlier shards that do not fill a batch
    first: list[Array] | None = None  # the first full batch
    for index in order:
        arrays, rows = read(int(index)), shards[index].rows
        chosen = None if generator is None else generator.permutation(rows)
        start = 0
        if rest is not None:
            start = min(size - len(rest[0]), rows)
            rest = [np.concatenate(pair) for pair in zip(rest, _rows(arrays, chosen, 0, start), strict=True)]
            if len(rest[0]) < size:
                continue
            first = first or rest
            yield rest
            rest = None
        while start + size <= rows:
            part = slice(start, start + size)
            full: Batch = [array[part] if chosen is None else Picked(array, chosen[part]) for array in arrays]
            if pad and first is None:
                first = [np.asarray(array) for array in full]
            yield full
            start += size
        if start < rows:
            rest = _rows(arrays, chosen, start, rows)
    if rest is not None and pad:
        first = first or rest
        missing = np.arange(size - len(rest[0])) % len(first[0])
        yield [np.concatenate((left, head[missing])) for left, head in zip(rest, first, strict=True)]


def _rows(arrays: Sequence[Array], chosen: Array | None, start: int, stop: int) -> list[Array]:
    if chosen is None:
        return [array[start:stop] for array in arrays]
    return [array[chosen[start:stop]] for array in arrays]


def _file_shards(path: Path, where: str, types: Mapping[str, TensorType]) -> list[_Shard]:
    """An .npz file, a folder with one .npy file an item, or a folder of .npz files in the order of their names."""
    if not path.is_dir():
        if path.suffix.lower() != ".npz":
            help = f"settings behind the data: {', '.join(SETTINGS)}" if "," in where else None
            raise UsageError(f"queue data: {where} is neither an .npz file nor a folder", code="KG274", help=help)
        return [_stored_shard({name: (path, "npz", name) for name in types}, where, types)]
    single = {name: (path / f"{name}.npy", "npy", None) for name in types}
    if all(file.exists() for file, _, _ in single.values()):
        return [_stored_shard(single, where, types)]
    archives = sorted(path.glob("*.npz"))
    if not archives:
        files = ", ".join(f"{name}.npy" for name in types)
        raise GraphError(f"{where} holds neither .npz files nor {files}", code="KG394")
    return [_stored_shard({name: (file, "npz", name) for name in types}, str(file), types) for file in archives]


def _stored_shard(
    files: Mapping[str, tuple[Path, str, str | None]], where: str, types: Mapping[str, TensorType]
) -> _Shard:
    from kgrun.graphs.data_files import checked_dtype, read_checked
    from kgrun.graphs.data_paths import Reference
    from kgrun.graphs.data_stored import open_stored

    texts = {name: str(file) if key is None else f"{file}#{key}" for name, (file, _, key) in files.items()}
    shapes = {}
    for name, (file, form, key) in files.items():
        stored = open_stored(file, form, key, str(file))
        checked_dtype(stored, types[name].dtype, texts[name])
        shapes[name] = stored.shape
    rows = _checked_rows(shapes, where, types)

    def read() -> tuple[Array, ...]:
        return tuple(
            read_checked(file, Reference(str(file), form, key), types[name].dtype, shapes[name], texts[name])
            for name, (file, form, key) in files.items()
        )

    return _Shard(rows, read)


def _array_shard(arrays: Mapping[str, Any], where: str, types: Mapping[str, TensorType]) -> _Shard:
    for name in types:
        if arrays.get(name) is None:
            raise GraphError(f"{where} have no {name!r}", code="KG394", help=f"items: {', '.join(types)}")
    held = {name: np.asarray(arrays[name]) for name in types}
    rows = _checked_rows({name: array.shape for name, array in held.items()}, where, types)
    for name, array in held.items():
        if array.dtype != numpy_dtype(types[name].dtype):
            raise GraphError(f"{where}: {name!r} is {array.dtype}, the queue takes {types[name].dtype}", code="KG394")
    return _Shard(rows, lambda: tuple(held.values()))


def _checked_rows(shapes: Mapping[str, tuple[int, ...]], where: str, types: Mapping[str, TensorType]) -> int:
    """How many samples there are. GraphError KG394 for shapes that are no samples of the items."""
    for name, shape in shapes.items():
        if not shape or shape[1:] != types[name].shape[1:]:
            wanted = ["N", *types[name].shape[1:]]
            raise GraphError(
                f"{where}: {name!r} has shape {list(shape)}, the queue takes [{', '.join(map(str, wanted))}]",
                code="KG394",
            )
    if len({shape[0] for shape in shapes.values()}) > 1:
        text = ", ".join(f"{name} {shape[0]:,}" for name, shape in shapes.items())
        raise GraphError(f"{where}: items of different numbers of samples: {text}", code="KG394")
    return next(iter(shapes.values()))[0]


def _python_batches(name: str, source: Any, settings: QueueSettings) -> Batches:
    """An iterable of whole batches, or a function that returns one for each epoch."""
    if settings.shuffle is not None:
        raise UsageError(f"queue {name!r}: batches made by Python come in their own order", code="KG274")
    if not callable(source) and not isinstance(source, Iterable):
        raise UsageError(f"queue {name!r} cannot be fed by a {type(source).__name__}", code="KG274")
    once = not callable(source) and iter(source) is source
    if once and settings.epochs != 1:
        raise UsageError(
            f"queue {name!r}: an iterator can be gone through once",
            code="KG274",
            help="give a list, or a function that returns an iterator",
        )
    known = len(source) * settings.epochs if hasattr(source, "__len__") and settings.epochs else None

    def start() -> Iterator[Any]:
        epoch = 0
        while settings.epochs == 0 or epoch < settings.epochs:
            none = True
            for batch in source() if callable(source) else source:
                none = False
                yield batch
            epoch += 1
            if none:
                raise GraphError(f"queue {name!r}: the source gave no batch", code="KG394")

    return Batches(known, settings.epochs == 0, start)
