"""Runs the cases of the command-line fuzz under limits of time and memory; prints one JSON object with the outcomes.

Run as `python -m tests.fuzz.run_cli_cases FOLDER SCALE SEED PART PARTS`. Its own process, because it limits its memory.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from kgrun.cli.boundary import guarded
from tests.fuzz.cli_cases import Case, cases, prepare

MEMORY = 1 << 30
SECONDS = 5
# Not 6: an operator that fails on the CPU should have been refused before.
EXITS = {0, 2, 3, 4, 5, 7, 8, 9}
# Commands that only look at the graph have no business with memory in proportion to its tensors.
LOOKING = ("validate", "plan-memory", "explain")


class Expired(BaseException):
    """The case ran too long."""


def outcome(case: Case, folder: Path) -> tuple[str, str | None]:
    """The exit code and error code of a case as a word, and what is wrong with it, if anything is."""
    path = folder / case.name
    path.write_bytes(case.data)
    words = [str(path) if word == "FILE" else word for word in case.words]

    def expire(signum: int, frame: object) -> None:
        raise Expired

    signal.signal(signal.SIGALRM, expire)
    signal.alarm(SECONDS)
    out, err = io.StringIO(), io.StringIO()
    code: int | None = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = guarded(words)
        return _judge(words, code, out.getvalue(), err.getvalue())
    except BaseException as error:
        return "raised", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def _judge(words: list[str], code: int, out: str, err: str) -> tuple[str, str | None]:
    if code not in EXITS:
        return str(code), f"exit {code}: {out[:300]}{err[:300]}"
    if "Traceback" in out + err:
        return str(code), f"traceback: {err[-500:]}"
    if "--json" not in words:
        good = err.startswith("error[KG") if code else not err
        return str(code), None if good else f"exit {code} with stderr {err[:200]!r}"
    try:
        document = json.loads(out, parse_constant=lambda word: 1 / 0)
    except (ValueError, ZeroDivisionError) as error:
        return str(code), f"no JSON document on stdout ({error}): {out[:300]!r}"
    if document["ok"] != (code == 0) or (code and document["error"]["exit"] != code) or err:
        return str(code), f"exit {code}, document {out[:300]!r}, stderr {err[:200]!r}"
    found = document["error"]["code"] if code else "0"
    if found == "KG410" and words[0] in LOOKING:
        return found, "planning ran out of memory"
    return found, None


def main(folder: Path, scale: int, seed: int, part: int, parts: int) -> None:
    """Run every `parts`-th case from `part` on and print the outcomes."""
    prepare(folder)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    outcomes: Counter[str] = Counter()
    failures = []
    slowest = (0.0, "")
    for number, case in enumerate(cases(scale, seed)):
        if number % parts != part:
            continue
        (folder / "now.txt").write_text(f"{number} {case.words}")
        started = time.perf_counter()
        word, fault = outcome(case, folder)
        slowest = max(slowest, (time.perf_counter() - started, f"{number} {case.words}"))
        outcomes[word] += 1
        if fault is not None:
            failures.append([number, fault, " ".join(case.words), case.data[:3000].decode("latin-1")])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        json.dumps(
            {"outcomes": outcomes, "failures": failures[:40], "count": len(failures), "peak": peak, "slowest": slowest}
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:6]))
