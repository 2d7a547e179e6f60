"""What benchmarks share: sections that fail alone, checks against a limit, tables, result files, ncu's numbers."""

from __future__ import annotations

import csv
import io
import json
import math
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "kgrun",
    "pycuda",
    "cuda-bindings",
    "nvidia-cuda-nvrtc",
    "numpy",
    "onnx",
    "onnxruntime",
    "torch",
    "cupti-python",
)


@dataclass(frozen=True)
class Check:
    """A number against its limit: `value` must be at most `limit`, or at least where `least`."""

    name: str
    value: float
    limit: float
    least: bool = False

    @property
    def ok(self) -> bool:
        """Whether it holds; a number that is none does not."""
        return self.value >= self.limit if self.least else self.value <= self.limit

    def text(self) -> str:
        """`replay ÷ hand-captured: 1.01 ≤ 1.03: holds`."""
        sign = "≥" if self.least else "≤"
        verdict = "holds" if self.ok else "DOES NOT HOLD"
        return f"{self.name}: {number(self.value)} {sign} {number(self.limit)}: {verdict}"


@dataclass
class Section:
    """One table of results."""

    title: str
    columns: Sequence[str] = ()
    rows: list[Sequence[Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    seconds: float = 0.0


def run_section(title: str, work: Callable[[Section], None]) -> Section:
    """The section that `work` fills; whatever it raises ends up in `error`, and what it filled in before stays."""
    section = Section(title)
    started = time.monotonic()
    print(f"… {title}", file=sys.stderr, flush=True)
    try:
        work(section)
    except Exception as error:
        traceback.print_exc()
        section.error = f"{type(error).__name__}: {error}"
    section.seconds = round(time.monotonic() - started, 1)
    return section


def number(value: Any) -> str:
    """A cell's text: four significant digits, `–` for what was not measured."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return str(value)


def markdown(head: Sequence[str], sections: Sequence[Section]) -> str:
    """The page of results."""
    lines = [*head, ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        if section.rows:
            lines.append("| " + " | ".join(section.columns) + " |")
            lines.append("|" + " --- |" * len(section.columns))
            lines += ["| " + " | ".join(number(cell) for cell in row) + " |" for row in section.rows]
            lines.append("")
        lines += [f"- {check.text()}" for check in section.checks]
        lines += [f"- {note}" for note in section.notes]
        lines += [f"- failed: {section.error}"] if section.error else []
        lines += [f"- took {section.seconds} s", ""]
    return "\n".join(lines)


def document(facts: dict[str, Any], sections: Sequence[Section]) -> dict[str, Any]:
    """The same for programs; what is no finite number is null."""
    rows = []
    for section in sections:
        row = asdict(section)
        for check, made in zip(row["checks"], section.checks, strict=True):
            check["ok"] = made.ok
        rows.append(row)
    found: dict[str, Any] = _finite(facts | {"sections": rows})
    return found


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def machine(device: str) -> dict[str, Any]:
    """Command, date and versions that the results belong to."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "command": shlex.join(["python", *sys.argv]),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "device": device,
        "python": platform.python_version(),
        "system": platform.platform(),
        "versions": versions,
        "ncu": ncu_version(),
    }


def head_lines(title: str, facts: dict[str, Any]) -> list[str]:
    """The head of the page."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items() if version)
    ncu = f", {facts['ncu']}" if facts["ncu"] else ""
    return [
        f"# {title}",
        "",
        f"`{facts['command']}`",
        "",
        f"{facts['date']}, {facts['device']}, Python {facts['python']}, {versions}{ncu}",
    ]


def write_results(folder: Path, name: str, text: str, data: dict[str, Any]) -> None:
    """Write NAME.md and NAME.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    (folder / f"{name}.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def sized_models(words: list[str]) -> Iterator[tuple[Path, dict[str, int]]]:
    """`model.onnx:N=1,S=128` as a path and dimensions."""
    for word in words:
        path, _, dims = word.partition(":")
        yield Path(path), {k: int(v) for k, v in (pair.split("=") for pair in dims.split(",") if pair)}


def medians_in_turn(rounds: int, ways: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Median of `rounds` values of each way; the ways take turns, so that a drift of the clocks meets all alike."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(way())
    return {name: statistics.median(values) for name, values in found.items()}


def ncu_version() -> str | None:
    """`ncu`'s version line, None where it is not installed."""
    if shutil.which("ncu") is None:
        return None
    done = subprocess.run(["ncu", "--version"], capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    return f"ncu: {lines[-1]}" if lines else None


def ncu_durations(command: Sequence[str], kernel: str, timeout: float) -> list[float]:
    """gpu__time_duration of each launch of `kernel`, µs, caches and clocks left alone; empty without ncu."""
    if shutil.which("ncu") is None:
        return []
    flags = ["--csv", "--metrics", "gpu__time_duration.sum", "--cache-control", "none", "--clock-control", "none"]
    chosen = ["--kernel-name", kernel]
    done = subprocess.run(
        ["ncu", *flags, *chosen, *command], capture_output=True, text=True, check=False, timeout=timeout
    )
    found = parse_ncu(done.stdout)
    if not found:
        print(done.stdout[-1500:], done.stderr[-1500:], file=sys.stderr)
    return found


_UNITS = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1.0, "us": 1.0, "msecond": 1e3, "ms": 1e3, "second": 1e6, "s": 1e6}


def parse_ncu(text: str) -> list[float]:
    """Metric values of ncu's CSV in µs, in order of the launches."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = csv.DictReader(io.StringIO("\n".join(lines)))
    return [
        float(row["Metric Value"].replace(",", "")) * _UNITS[row["Metric Unit"]]
        for row in rows
        if row.get("Metric Name", "").startswith("gpu__time_duration")
    ]
