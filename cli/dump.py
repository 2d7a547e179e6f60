"""`--dump` and its companions: words to what a run dumps, and the line that says what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kgrun.graphs.errors import UsageError

if TYPE_CHECKING:
    from kgrun.runtime.dump import DumpConfig
    from kgrun.runtime.report import Dumped


def dump_options(
    names: Sequence[str] | None, folder: str | None, iterations: str | None, config: str | None
) -> DumpConfig | None:
    """What to dump; None where nothing is asked for.

    Raises:
        UsageError: KG240 for options that exclude or need each other, KG253 for malformed ones.
        GraphError: for the configuration file, as `read_config`.
    """
    if config is not None:
        if names or folder is not None or iterations is not None:
            raise UsageError("--dump-config says all that --dump and its companions say", code="KG240")
        from kgrun.runtime.dump.config import read_config

        return read_config(config)
    if not names:
        if folder is not None or iterations is not None:
            raise UsageError("nothing is to be dumped", code="KG240", help="give --dump NAME, or --dump all")
        return None
    if folder is None:
        raise UsageError("--dump needs a folder", code="KG240", help="give --dump-dir DIR")
    from kgrun.runtime.dump import DumpConfig
    from kgrun.runtime.dump.iterations import parse_iterations

    wanted = tuple(dict.fromkeys(part.strip() for text in names for part in text.split(",") if part.strip()))
    if not wanted:
        raise UsageError("--dump names nothing", code="KG253", help="names of tensors or nodes, or all")
    return DumpConfig(wanted, Path(folder), parse_iterations(iterations or "0"))


def dump_line(dumped: Dumped) -> str:
    """What was written."""
    files = "file" if dumped.files == 1 else "files"
    return f"\ndumped {dumped.nbytes:,} bytes of tensors in {dumped.files:,} {files} under {dumped.folder}"
