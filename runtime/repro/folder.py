"""Where a bundle may go."""

from __future__ import annotations

from pathlib import Path

from kgrun.graphs.errors import UsageError


def check_folder(folder: Path) -> None:
    """UsageError KG258 unless a bundle can take the place of `folder`: it is not there, or is empty."""
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        above = next((each for each in folder.absolute().parents if each.exists()), None)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}", code="KG258") from None
    if above is not None and not above.is_dir():
        raise UsageError(f"cannot write {folder}: {above} is no folder", code="KG258")
    if taken:
        raise UsageError(f"--repro: {folder} is there already", code="KG258", help="name a folder that is new or empty")
