"""Loads many broken graph files under limits of time and memory; prints one JSON object with the outcomes.

Run as `python -m tests.fuzz.run_cases COUNT`. Its own process, because it limits its memory.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kgrun.graphs.errors import KgrunError
from kgrun.graphs.load import parse_graph
from kgrun.graphs.schema.graph import KernelGraph
from tests.fuzz.mutate import mutations

SEEDS = Path(__file__).parent / "seeds"
MEMORY = 1 << 30
SECONDS = 5
SEED = 1
EXITS = {2, 3}


def cases(count: int) -> Iterator[tuple[str, bytes]]:
    """`count` mutants of every seed, with the name they are loaded under."""
    for path in sorted(SEEDS.iterdir()):
        for data in mutations(path.read_text("utf-8"), count, seed=SEED):
            # What starts with a brace is tried as JSON too, whatever it was made from.
            yield (path.name if path.suffix != ".yaml" or not data.startswith(b"{") else "mutant.json"), data


def outcome(name: str, data: bytes) -> str:
    """How loading ends: "graph", a code, or what went wrong."""

    def expire(signum: int, frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, expire)
    signal.alarm(SECONDS)
    try:
        graph = parse_graph(data, name=name, format="json" if name.endswith(".json") else "yaml")
        return "graph" if isinstance(graph, KernelGraph) else f"not a graph: {type(graph)}"
    except KgrunError as error:
        text = error.to_text() + json.dumps([e.to_json() for e in (error, *error.others)])
        text.encode("utf-8")
        return error.code if error.exit in EXITS else f"exit {error.exit}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def main(count: int) -> None:
    """Run all cases and print the outcomes."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    outcomes: Counter[str] = Counter()
    failures = []
    for name, data in cases(count):
        result = outcome(name, data)
        outcomes[result] += 1
        if result != "graph" and not result.startswith("KG"):
            failures.append([name, result[:500], data[:300].decode("latin-1")])
    print(json.dumps({"outcomes": outcomes, "failures": failures[:20]}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
