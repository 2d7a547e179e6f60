"""The names of the checks, which device offers which, and the settings of a checked run."""

from __future__ import annotations

from collections.abc import Iterable

from kgrun.graphs.errors import UsageError, did_you_mean
from kgrun.graphs.records import dataclass

# What each check finds. The first four follow every access of a custom kernel, which only the CPU device can.
CHECKS = {
    "bounds": "accesses outside a kernel's tensors or shared variables, misaligned ones, writes to inputs",
    "race": "accesses of one element by threads that nothing orders, one of them a write",
    "barrier": "barriers that not all threads of a block reach",
    "init": "elements read before anything wrote them, and output elements that nothing wrote",
    "nan": "the first kernel whose result holds NaN or infinity although none of its inputs does",
    "readonly": "kernels that change a tensor which they only declare as an input",
    "redzone": "writes just before or behind a tensor",
}
FOLLOWED = frozenset({"bounds", "race", "barrier", "init"})  # by the CPU device's kernels
WATCHED = frozenset({"init", "nan", "readonly", "redzone"})  # from outside, on every device

GUARD = 1024  # bytes kept free on each side of a buffer, for its canaries


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """What a checked run does.

    Attributes:
        names: the checks.
        schedule: order in which threads and blocks of custom kernels run on the CPU: forward, reverse or random:SEED.
    """

    names: frozenset[str] = frozenset()
    schedule: str = "forward"

    @property
    def guard(self) -> int:
        """Bytes to keep free around each buffer."""
        return GUARD if "redzone" in self.names else 0

    @property
    def followed(self) -> frozenset[str]:
        """Checks that follow the accesses of custom kernels on the CPU."""
        return self.names & FOLLOWED


def split_checks(text: str) -> tuple[str, ...]:
    """The names in `bounds,race`; UsageError KG214 for one that is none."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    known = (*CHECKS, "all")
    for name in names:
        if name not in known:
            help = did_you_mean(name, known) or f"checks: {', '.join(known)}"
            raise UsageError(f"unknown check {name!r}", code="KG214", help=help)
    if not names:
        raise UsageError("no check is named", code="KG214", help=f"checks: {', '.join(known)}")
    return names


def check_schedule(text: str) -> str:
    """`text` where it is a schedule; UsageError KG211 where not."""
    name, _, seed = text.partition(":")
    if text in ("forward", "reverse") or (name == "random" and seed.isascii() and seed.isdecimal() and len(seed) < 10):
        return text
    raise UsageError(f"unknown schedule {text!r}", code="KG211", help="schedules: forward, reverse, random:SEED")


def check_settings(names: Iterable[str], schedule: str, device: str) -> CheckSettings:
    """The settings for a kind of device ("cpu" or "cuda"); `all` stands for everything it offers.

    Raises:
        UsageError: KG214 for a check that is none, or that the device does not offer; KG211 for the schedule.
    """
    wanted = {part for name in names for part in split_checks(name)}
    offered = set(CHECKS) if device == "cpu" else WATCHED
    if missing := sorted(wanted - {"all"} - offered):
        raise UsageError(
            f"check {missing[0]!r} follows every access of a kernel, which a GPU cannot",
            code="KG214",
            help=f"use --device cpu, or of these: {', '.join(n for n in CHECKS if n in offered)}",
        )
    if check_schedule(schedule) != "forward" and device != "cpu":
        raise UsageError("a GPU has its own schedule", code="KG211", help="use --device cpu with --schedule")
    return CheckSettings(frozenset(offered if "all" in wanted else wanted), schedule)
