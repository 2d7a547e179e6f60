"""The packing problem as plain records: buffers in columns, sparse extra constraints, checked once."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm

LIMIT = 1 << 60  # every byte count and every sum of aligned sizes stays below this, so int64 sums never overflow


class PackingError(ValueError):
    """Base of the errors of this library."""


class ProblemError(PackingError):
    """The problem contradicts itself or is out of range; `index` is the buffer at fault, where there is one."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


@dataclass(frozen=True)
class Group:
    """Buffers laid one after the other, in this order.

    The first member starts at a multiple of every member's alignment; each next one starts at the first aligned
    offset that lies `between` bytes or more after its predecessor. `before` and `after` bytes outside the first
    and last member are reserved as long as that member lives; the bytes between belong to the earlier member.
    """

    members: tuple[int, ...]
    before: int = 0
    between: int = 0
    after: int = 0


@dataclass(frozen=True)
class Problem:
    """Buffers to place in one or several linear memories.

    Attributes
    ----------
    lower, upper : columns of int. Life [lower, upper), in any integer unit of time.
    size : column of int, bytes.
    ids : names for reports; positions are used where it is None.
    alignment : bytes, one for all or a column. Every offset is a multiple of it.
    pad : whether a buffer occupies its size rounded up to its alignment (what allocators do) or its size alone.
    extra_intervals : {i: [(lower, upper), ...]} further lives of buffer i; the holes between are free for others.
    fixed : {i: offset}.
    hint : {i: offset}, a suggestion tried as an ordering; never binding.
    groups : contiguous ordered groups; a buffer belongs to one at most.
    aliases : {child: (parent, byte offset)}; the child lies inside the parent and the lives are united.
    conflicts : pairs that must not share bytes; given, they replace interval overlap altogether.
    extra_conflicts : pairs that must not share bytes besides those whose lives overlap.
    persistent : buffers that share with nobody, whatever their lives say.
    space : the memory a buffer lies in, a column; None puts all in space 0.
    capacity : {space: bytes}, upper limits.
    max_chunk : bytes. No buffer crosses a multiple of it; a larger buffer starts at one.

    Columns may be lists, `array('q')` or numpy arrays; they are held as `array('q')`. Raises ProblemError.
    """

    lower: Iterable[int]
    upper: Iterable[int]
    size: Iterable[int]
    ids: Sequence[str] | None = None
    alignment: int | Iterable[int] = 1
    pad: bool = True
    extra_intervals: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    fixed: Mapping[int, int] = field(default_factory=dict)
    hint: Mapping[int, int] = field(default_factory=dict)
    groups: Sequence[Group | Sequence[int]] = ()
    aliases: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    conflicts: Collection[tuple[int, int]] | None = None
    extra_conflicts: Collection[tuple[int, int]] = ()
    persistent: Collection[int] = ()
    space: Iterable[int] | None = None
    capacity: Mapping[int, int] = field(default_factory=dict)
    max_chunk: int | None = None

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "size"):
            object.__setattr__(self, name, column(getattr(self, name), name))
        if not isinstance(self.alignment, int):
            object.__setattr__(self, "alignment", column(self.alignment, "alignment"))
        if self.space is not None:
            object.__setattr__(self, "space", column(self.space, "space"))
        groups = tuple(g if isinstance(g, Group) else Group(tuple(g)) for g in self.groups)
        object.__setattr__(self, "groups", groups)
        _check_columns(self)
        _check_sparse(self)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def lowers(self) -> array[int]:
        return self.lower  # type: ignore[return-value]  # converted in __post_init__

    @property
    def uppers(self) -> array[int]:
        return self.upper  # type: ignore[return-value]

    @property
    def sizes(self) -> array[int]:
        return self.size  # type: ignore[return-value]

    @property
    def spaces(self) -> array[int] | None:
        return self.space  # type: ignore[return-value]

    @property
    def group_list(self) -> tuple[Group, ...]:
        return self.groups  # type: ignore[return-value]

    def name(self, index: int) -> str:
        """The id of a buffer, or its position where the problem has no ids."""
        return str(index) if self.ids is None else str(self.ids[index])

    def align(self, index: int) -> int:
        return self.alignment if isinstance(self.alignment, int) else self.alignment[index]  # type: ignore[index]

    def occupied(self, index: int) -> int:
        """Bytes a buffer takes from its offset on: its size, rounded up to its alignment where `pad` is set."""
        size = self.sizes[index]
        return size + -size % self.align(index) if self.pad else size

    def occupied_column(self) -> array[int]:
        """`occupied` of every buffer."""
        if not self.pad or self.alignment == 1:
            return self.sizes
        if isinstance(self.alignment, int):
            a = self.alignment
            return array("q", [s + -s % a for s in self.sizes])
        return array("q", [s + -s % a for s, a in zip(self.sizes, self.alignment, strict=True)])

    @property
    def plain(self) -> bool:
        """Whether there is nothing but lives, sizes and alignments in a single memory."""
        sparse = self.extra_intervals or self.fixed or self.groups or self.aliases or self.extra_conflicts
        return not (sparse or self.persistent or self.conflicts is not None or self.space is not None)


def column(values: Iterable[int], name: str) -> array[int]:
    """`values` as array('q'); a one-dimensional int64 buffer is copied without a Python loop."""
    if isinstance(values, array) and values.typecode == "q":
        return values
    try:
        view = memoryview(values)  # type: ignore[arg-type]
    except TypeError:
        view = None
    try:
        if view is not None and view.ndim == 1 and view.format in ("l", "q") and view.itemsize == 8:
            out = array("q")
            out.frombytes(view.tobytes())
            return out
        return array("q", values if isinstance(values, list) else list(values))
    except (TypeError, OverflowError) as error:
        raise ProblemError(f"column {name} must hold 64-bit integers: {error}") from None


def _check_columns(p: Problem) -> None:
    n = len(p.sizes)
    columns = {"lower": p.lowers, "upper": p.uppers, "space": p.spaces}
    if not isinstance(p.alignment, int):
        columns["alignment"] = p.alignment  # type: ignore[assignment]
    for name, values in columns.items():
        if values is not None and len(values) != n:
            raise ProblemError(f"column {name} has {len(values)} entries, size has {n}")
    if p.ids is not None and len(p.ids) != n:
        raise ProblemError(f"ids has {len(p.ids)} entries, size has {n}")
    if n == 0:
        return
    if min(p.sizes) < 0:
        i = next(i for i, s in enumerate(p.sizes) if s < 0)
        raise ProblemError(f"buffer {p.name(i)} has a negative size: {p.sizes[i]}", i)
    smallest = p.alignment if isinstance(p.alignment, int) else min(p.alignment)
    if smallest < 1:
        raise ProblemError(f"an alignment must be 1 or more, got {smallest}")
    if any(map(int.__gt__, p.lowers, p.uppers)):
        i = next(i for i in range(n) if p.lowers[i] > p.uppers[i])
        raise ProblemError(f"buffer {p.name(i)} ends at {p.uppers[i]}, before it starts at {p.lowers[i]}", i)
    if max(p.uppers) >= LIMIT or min(p.lowers) <= -LIMIT:
        raise ProblemError("a time is out of range (2^60)")
    largest = p.alignment if isinstance(p.alignment, int) else max(p.alignment)
    if sum(p.sizes) + n * largest >= LIMIT:
        raise ProblemError("the sizes add up to more than 2^60 bytes")


def _check_sparse(p: Problem) -> None:
    n = len(p)
    for name in ("extra_intervals", "fixed", "hint", "persistent", "aliases"):
        for i in getattr(p, name):
            _check_index(i, n, name)
    for i, spans in p.extra_intervals.items():
        for low, high in spans:
            if low > high or high >= LIMIT or low <= -LIMIT:
                raise ProblemError(f"buffer {p.name(i)} has a bad further interval [{low}, {high})", i)
    for what, offsets in (("fixed offset", p.fixed), ("hint", p.hint)):
        for i, offset in offsets.items():
            if not 0 <= offset < LIMIT:
                raise ProblemError(f"buffer {p.name(i)} has a bad {what}: {offset}", i)
    for i, offset in p.fixed.items():
        if offset % p.align(i):
            raise ProblemError(f"buffer {p.name(i)}: fixed {offset} is no multiple of {p.align(i)}", i)
    for child, (parent, offset) in p.aliases.items():
        _check_index(parent, n, "aliases")
        if offset < 0 or offset + p.sizes[child] > p.sizes[parent]:
            names = f"{p.name(child)} (alias at byte {offset})", p.name(parent)
            raise ProblemError(f"buffer {names[0]} does not lie inside {names[1]}", child)
    for pair in (*(p.conflicts or ()), *p.extra_conflicts):
        for i in pair:
            _check_index(i, n, "conflicts")
    if p.max_chunk is not None and p.max_chunk < 1:
        raise ProblemError(f"max_chunk must be 1 byte or more, got {p.max_chunk}")
    if p.max_chunk is not None and any(p.max_chunk % p.align(i) for i in range(n)):
        raise ProblemError(f"max_chunk {p.max_chunk} must be a multiple of every alignment")
    _check_groups(p)


def _check_groups(p: Problem) -> None:
    seen: set[int] = set()
    total = 0
    for group in p.group_list:
        if min(group.before, group.between, group.after) < 0:
            raise ProblemError("the gaps of a group must not be negative")
        for i in group.members:
            _check_index(i, len(p), "groups")
            if i in seen:
                raise ProblemError(f"buffer {p.name(i)} is in two groups, or twice in one", i)
            seen.add(i)
        step = lcm(*(p.align(i) for i in group.members))
        total += group.before + group.after + len(group.members) * (group.between + step)
        if total >= LIMIT or step >= LIMIT:
            raise ProblemError("the gaps and alignments of the groups are out of range")


def _check_index(i: int, n: int, where: str) -> None:
    if not 0 <= i < n:
        raise ProblemError(f"{where} names buffer {i}; there are {n}")
