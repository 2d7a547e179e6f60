"""Run ONNX's node tests through kgrun and count, for every operator, what passed, failed and is not supported.

    python scripts/conformance.py [--device cpu|cuda] [--only PATTERN] [--save benchmarks/results]

Exit code 1 where a test fails. `--save` writes onnx_conformance_DEVICE.json and .md there.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import time
import warnings
from collections import Counter, defaultdict
from importlib import metadata
from pathlib import Path
from typing import Any

from kgrun.runtime.onnx_backend import UnsupportedModel, prepare

# Expected outputs that come from a softmax rounded to float16 at every step, where kgrun accumulates in float32: two
# units in the last place, which is what the suite itself grants bfloat16.
RTOL = dict.fromkeys(("test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded"), 2**-9)
# Tests whose expected output is what numpy's random generator gave.
RANDOM = re.compile(r"test_bernoulli")
VERDICTS = ("passed", "unsupported", "failed")


def cases(only: str | None) -> dict[str, Any]:
    """ONNX's node tests by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {case.name: case for case in load_model_tests(kind="node")}
    return {name: case for name, case in sorted(found.items()) if only is None or re.search(only, name)}


def operators(found: dict[str, Any]) -> dict[str, str]:
    """The operator that each test is of: an expanded test belongs to the one it expands."""
    of = {}
    for name, case in found.items():
        base = found.get(re.sub(r"_expanded(_ver\d+)?$", "", name), case)
        of[name] = base.model.graph.node[-1].op_type if len(base.model.graph.node) == 1 else _main(base)
    return of


def _main(case: Any) -> str:
    """Of several nodes: the operator whose name the test's begins with, else the first."""
    ops = [node.op_type for node in case.model.graph.node]
    squeezed = case.name.removeprefix("test_").replace("_", "")
    return next((op for op in ops if squeezed.startswith(op.lower())), ops[0])


def run_case(case: Any, device: str) -> tuple[str, str]:
    """Verdict and reason of one test."""
    from onnx.backend.test.runner import Runner, _normalize_tensor

    if RANDOM.match(case.name):
        return "unsupported", "random numbers: nobody can reproduce the expected output"
    try:
        with prepare(case.model, device) as prepared:
            for inputs, expected in case.data_sets:
                outputs = prepared.run([_normalize_tensor(item) for item in inputs])
                wanted = [_normalize_tensor(item) for item in expected]
                # The suite's comparison of sequences stumbles over tensors of rank 0, so these go one by one.
                assert [isinstance(item, list) for item in wanted] == [isinstance(item, list) for item in outputs]
                pairs = [_opened(wanted), _opened(outputs)]
                Runner.assert_similar_outputs(*pairs, rtol=RTOL.get(case.name, case.rtol), atol=case.atol)
    except UnsupportedModel as error:
        return "unsupported", str(error)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return "failed", f"{type(error).__name__}: {' '.join(lines[:6])[:400]}"
    return "passed", ""


def _opened(outputs: Any) -> list[Any]:
    """The outputs with sequences opened."""
    return [item for output in outputs for item in (output if isinstance(output, list) else [output])]


def report(rows: list[dict[str, str]], device: str, seconds: float) -> dict[str, Any]:
    """The document that is saved."""
    packages = ("kgrun", "onnx", "numpy", "ml_dtypes")
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        by_operator[row["operator"]][row["verdict"]] += 1
    return {
        "command": f"python scripts/conformance.py --device {device}",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": device,
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in packages},
        "seconds": round(seconds, 1),
        "totals": {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS},
        "operators": {op: {v: counts[v] for v in VERDICTS} for op, counts in sorted(by_operator.items())},
        "not_passed": [row for row in rows if row["verdict"] != "passed"],
    }


def page(document: dict[str, Any]) -> str:
    """The document as Markdown."""
    totals, versions = document["totals"], document["versions"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        f"# ONNX node tests on {document['device']}",
        "",
        f"`{document['command']}`, {document['date']}; Python {document['python']}, {listed}.",
        "Tolerances are the suite's own (rtol 1e-3, atol 1e-7 unless a test says otherwise), but for "
        + ", ".join(f"{name} ({rtol:g})" for name, rtol in RTOL.items())
        + ": expected values were rounded to float16 at every step.",
        "",
        f"{sum(totals.values()):,} tests: {totals['passed']:,} passed, {totals['unsupported']:,} unsupported, "
        f"{totals['failed']:,} failed.",
        "",
        "| operator | passed | unsupported | failed |",
        "| --- | ---: | ---: | ---: |",
        *(f"| {op} | {c['passed']} | {c['unsupported']} | {c['failed']} |" for op, c in document["operators"].items()),
        "",
        "## Reasons",
        "",
        "| reason | tests |",
        "| --- | ---: |",
    ]
    reasons = Counter(re.sub(r"node '[^']*' ", "", row["reason"]) for row in document["not_passed"])
    lines += [f"| {reason.replace('|', '/')[:160]} | {count} |" for reason, count in reasons.most_common()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", help="regular expression that a test's name must match")
    parser.add_argument("--save", type=Path, help="folder for the result files")
    parser.add_argument("--verbose", action="store_true", help="print what did not pass, one line a test")
    options = parser.parse_args()
    found = cases(options.only)
    of = operators(found)
    started, rows = time.perf_counter(), []
    for name, case in found.items():
        verdict, reason = run_case(case, options.device)
        rows.append({"test": name, "operator": of[name], "verdict": verdict, "reason": reason})
        if verdict == "failed" or (options.verbose and verdict != "passed"):
            print(f"{verdict:<12}{name}: {reason}", flush=True)
    document = report(rows, options.device, time.perf_counter() - started)
    for op, counts in document["operators"].items():
        print(f"{op:<32}" + "".join(f"{counts[verdict]:>6} {verdict}" for verdict in VERDICTS))
    print(", ".join(f"{count:,} {verdict}" for verdict, count in document["totals"].items()))
    if options.save is not None:
        stem = options.save / f"onnx_conformance_{options.device.partition(':')[0]}"
        stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        stem.with_suffix(".md").write_text(page(document), encoding="utf-8")
    return 1 if document["totals"]["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
