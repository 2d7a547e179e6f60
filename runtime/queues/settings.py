"""What feeds a queue and how: the graph's own words, and those of the caller, which beat them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kgrun.graphs.errors import UsageError, did_you_mean
from kgrun.graphs.load.limits import MAX_CAPACITY
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from kgrun.graphs.schema.graph import KernelGraph, QueueSpec

    Array = np.ndarray[Any, Any]

Last = Literal["drop", "pad", "error"]

_MAX_SECONDS = 1e7

SETTINGS = {  # what each of them is
    "shuffle": "a seed, a whole number from 0",
    "epochs": "a whole number from 0, where 0 is without end",
    "last": "drop, pad or error",
    "timeout": f"more than 0 s and at most {_MAX_SECONDS:,.0f}",
    "capacity": f"a whole number from 1 to {MAX_CAPACITY:,}",
}


@dataclass(frozen=True, slots=True)
class QueueFeed:
    """What feeds one queue. None leaves a setting to the graph.

    Attributes:
        source: an .npz file; a folder of .npz files, or of one .npy file an item; arrays by item name, of any number of
            samples; or an iterable of whole batches (by name, or in the items' order), or a function that returns one
            and is called once an epoch.
        shuffle: seed by which the samples are put in another order each epoch.
        epochs: times that the data are gone through; 0: without end.
        last: what becomes of a last batch that is not full: "drop" it, "pad" it with samples from the start of the
            epoch, or an "error".
        timeout: seconds to wait for a batch.
        capacity: batches held ahead of the run.
    """

    source: Any = None
    shuffle: int | None = None
    epochs: int | None = None
    last: Last | None = None
    timeout: float | None = None
    capacity: int | None = None


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A `QueueFeed` with nothing left open; `where` is how messages call the source."""

    source: Any
    where: str
    shuffle: int | None
    epochs: int
    last: Last
    timeout: float
    capacity: int


def settle(graph: KernelGraph, name: str, spec: QueueSpec, feed: QueueFeed) -> QueueSettings:
    """The settings of queue `name`.

    Raises:
        UsageError: KG253 for a setting out of range, KG277 for a queue without data.
        GraphError: KG371 for data outside the graph's folder.
    """
    source = feed.source
    if source is None:
        if spec.data is None:
            raise UsageError(
                f"queue {name!r} has no data",
                code="KG277",
                where=graph.place("queues", name),
                help=f"pass --queue {name}=FILE.npz, or give it `data`",
            )
        from kgrun.graphs.data import inside

        source = inside(spec.data, folder=graph.folder, allow_external=graph.allows_external_data)
    where = str(source) if isinstance(source, str | Path) else f"the data of queue {name!r}"
    timeout = spec.timeout if feed.timeout is None else feed.timeout
    made = QueueSettings(
        source=source,
        where=spec.data if feed.source is None and spec.data is not None else where,
        shuffle=spec.shuffle if feed.shuffle is None else feed.shuffle,
        epochs=spec.epochs if feed.epochs is None else feed.epochs,
        last=feed.last or spec.last,
        timeout=timeout,
        capacity=spec.capacity if feed.capacity is None else feed.capacity,
    )
    _check(name, made)
    return made


def _check(name: str, made: QueueSettings) -> None:
    given: dict[str, Any] = {key: getattr(made, key) for key in SETTINGS}
    timeout = given["timeout"]
    fits = {
        "shuffle": given["shuffle"] is None or _whole(given["shuffle"], 0),
        "epochs": _whole(given["epochs"], 0),
        "last": given["last"] in ("drop", "pad", "error"),
        "timeout": isinstance(timeout, Real) and 0 < float(timeout) <= _MAX_SECONDS,
        "capacity": _whole(given["capacity"], 1) and given["capacity"] <= MAX_CAPACITY,
    }
    for key in SETTINGS:
        if not fits[key]:
            raise UsageError(f"queue {name!r}: {key}={given[key]!r} cannot be: it is {SETTINGS[key]}", code="KG253")


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and int(value) >= least


def as_feed(given: Any) -> QueueFeed:
    """`given` as a QueueFeed: a source alone leaves all settings to the graph."""
    return given if isinstance(given, QueueFeed) else QueueFeed(given)


def check_feeds(graph: KernelGraph, feeds: Mapping[str, Any]) -> None:
    """UsageError KG275 for a feed of a queue that the graph has not."""
    for name in feeds:
        if name not in graph.queues:
            raise UsageError(
                f"the graph has no queue {name!r}",
                code="KG275",
                help=did_you_mean(name, graph.queues) or f"queues: {', '.join(graph.queues) or 'none'}",
            )


def parse_queues(words: Iterable[str]) -> dict[str, QueueFeed]:
    """`NAME=FILE,shuffle=SEED,epochs=N,last=drop|pad|error,timeout=S,capacity=N` words; FILE may be left out.

    Raises:
        UsageError: KG274 for a malformed word, KG276 for a queue named twice (B18).
    """
    feeds: dict[str, QueueFeed] = {}
    for word in words:
        name, equals, rest = word.partition("=")
        if not name or not equals:
            raise UsageError(
                f"--queue: {word!r} is not NAME=FILE",
                code="KG274",
                help="for example --queue train=digits.npz,epochs=2",
            )
        if name in feeds:
            raise UsageError(f"--queue: queue {name!r} is given twice", code="KG276")
        parts = rest.split(",")
        count = next((i for i, part in enumerate(parts) if part.partition("=")[0] in _PARSERS), len(parts))
        settings = dict(_setting(name, part) for part in parts[count:])
        feeds[name] = QueueFeed(",".join(parts[:count]) or None, **settings)
    return feeds


def _setting(name: str, part: str) -> tuple[str, Any]:
    key, _, text = part.partition("=")
    if key not in _PARSERS:
        raise UsageError(
            f"--queue {name}: there is no setting {key!r}",
            code="KG274",
            help=did_you_mean(key, _PARSERS) or f"settings: {', '.join(_PARSERS)}",
        )
    try:
        return key, _PARSERS[key](text)
    except ValueError:
        help = f"{key} is {SETTINGS[key]}"
        raise UsageError(f"--queue {name}: {text!r} is no value of {key}", code="KG274", help=help) from None


def _last(text: str) -> str:
    if text not in ("drop", "pad", "error"):
        raise ValueError(text)
    return text


_PARSERS: dict[str, Callable[[str], Any]] = {
    "shuffle": int,
    "epochs": int,
    "last": _last,
    "timeout": float,
    "capacity": int,
}
