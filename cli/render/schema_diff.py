"""The part of the reports' schema that says what two reports against each other are."""

from __future__ import annotations

from kgrun.cli.render.schema import COMMON, FAILURE, WARNING
from kgrun.cli.render.schema_parts import BOOLEAN, COUNT, NUMBER, STRING, Schema, mapping, maybe, record, rows


def diff_document() -> Schema:
    """The document of `kgrun diff`."""
    common = {key: COMMON[key] for key in ("schema_version", "ok", "kgrun")}
    side = record({"file": STRING, "kgrun": STRING, "graph": STRING, "device": maybe(STRING), "samples": BOOLEAN})
    row = record(
        {
            "kind": {"enum": ["run", "memory", "kernel"]},
            "name": STRING,
            "old_name": maybe(STRING),
            "op": maybe(STRING),
            "metric": STRING,
            "unit": {"enum": ["ns", "bytes"]},
            "a": maybe(COUNT),
            "b": maybe(COUNT),
            "change": maybe(NUMBER),
            "verdict": {"enum": ["regressed", "improved", "unchanged", "added", "removed", "not comparable"]},
            "judged": BOOLEAN,
            "p": maybe(NUMBER),
            "note": maybe(STRING),
        }
    )
    members = {
        "a": side,
        "b": side,
        "max_regress": NUMBER,
        "metrics": rows(STRING),
        "floor_ns": maybe(COUNT),
        "alpha": NUMBER,
        "counts": mapping(COUNT),
        "rows": rows(row),
        "outputs": rows(record({"name": STRING, "what": STRING})),
        "warnings": rows(WARNING),
    }
    return record(common | FAILURE | members, optional=tuple(FAILURE))
