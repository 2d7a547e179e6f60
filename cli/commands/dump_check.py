"""`kgrun dump-check`: whether a dump configuration is right, and what it would dump."""

from __future__ import annotations

from typing import Annotated, Any

from kgrun.cli import options as opt
from kgrun.cli.output import Output

Config = Annotated[str, opt.argument("CONFIG", "A dump configuration: a JSON file, - is standard input.")]


def command(
    file: Config,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    no_color: opt.NoColor = False,
) -> None:
    """Check a dump configuration; say what it dumps, when, and where to."""
    output = Output(json, None, quiet, verbose, no_color)
    from kgrun.runtime.dump.config import read_config

    config = read_config(file)
    ranges = config.iterations.ranges
    parts = [part for part, wanted in (("inputs", config.inputs), ("outputs", config.outputs)) if wanted]
    row: dict[str, Any] = {
        "enabled": config.enabled,
        "folder": str(config.folder),
        "kernels": None if config.everything else list(config.names),
        "parts": parts,
        "iterations": None if ranges is None else [list(each) for each in ranges],
        "devices": sorted(config.devices or ()),
    }

    def lines() -> list[str]:
        spans = "all" if ranges is None else ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in ranges)
        return [
            f"{file}: {'on' if config.enabled else 'off (e2e_dump_settings.enable is false)'}",
            f"  kernels      {'all' if config.everything else ', '.join(config.names)}",
            f"  of each      {' and '.join(parts)}",
            f"  iterations   {spans}",
            f"  devices      {', '.join(map(str, row['devices'])) or 'none'}",
            f"  folder       {config.folder}",
        ]

    output.emit(document=lambda: {"dump": row}, report=lines)
