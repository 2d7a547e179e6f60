"""An exhausted pool as the user sees it: what is needed, what there is, in what pieces, and who holds the rest."""

from __future__ import annotations

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.memory.pool.statistics import PoolExhausted


def exhausted(error: PoolExhausted, step: str | None, refusal: DoesNotFit | None = None) -> DoesNotFit:
    """DoesNotFit KG411 (U5).

    Args:
        step: the step that asked for the bytes.
        refusal: what the device said when it was asked for another block.
    """
    asks = f"{error.name!r}" + (f" at step {step!r}" if step is not None else "")
    lines = [f"the memory pool has no room for {asks}", *report_lines(error)]
    if refusal is not None:
        lines.append(f"  device     {refusal.message.splitlines()[0]}")
    return DoesNotFit(
        "\n".join(lines),
        code="KG411",
        help="use smaller dimensions or a higher --memory-limit; `--memory planned` packs known sizes tighter",
        details=details(error, step),
    )


def report_lines(error: PoolExhausted) -> list[str]:
    """Needed, available and used bytes, a line each, with the largest holders."""
    stats = error.statistics
    holders = ", ".join(f"{h.name} ({h.nbytes:,})" for h in error.holders) or "nobody"
    fragments = f"{stats.fragments} piece{'' if stats.fragments == 1 else 's'}"
    return [
        f"  needed     {error.needed:,} bytes",
        f"  available  {error.room:,} bytes to grow by; idle in the pool {stats.idle:,} in {fragments}, "
        f"the largest {stats.largest_idle:,}",
        f"  in use     {stats.used:,} of {stats.total:,} bytes; most by {holders}",
    ]


def details(error: PoolExhausted, step: str | None) -> dict[str, object]:
    """The plain values of the error's JSON document."""
    stats = error.statistics
    return {
        "name": error.name,
        "step": step,
        "needed_bytes": error.needed,
        "available_bytes": error.room,
        "pool_total_bytes": stats.total,
        "pool_used_bytes": stats.used,
        "pool_peak_bytes": stats.peak,
        "pool_idle_bytes": stats.idle,
        "largest_idle_bytes": stats.largest_idle,
        "fragments": stats.fragments,
        "holders": [{"name": holder.name, "nbytes": holder.nbytes} for holder in error.holders],
    }
