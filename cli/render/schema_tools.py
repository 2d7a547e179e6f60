"""The JSON Schema of what `doctor`, `dump-check`, `execute A B`, `run-op --list` and `run-op --describe` print."""

from __future__ import annotations

from kgrun.cli.render.schema import COMMON
from kgrun.cli.render.schema_parts import BOOLEAN, COUNT, STRING, Schema, mapping, maybe, record, ref, rows


def doctor_schema() -> Schema:
    """What is installed and what works."""
    component = record(
        {
            "component": STRING,
            "status": {"enum": ["ok", "missing", "broken"]},
            "version": maybe(STRING),
            "why": STRING,
            "part": STRING,
            "install": maybe(STRING),
            "detail": maybe(STRING),
        }
    )
    ability = record({"name": STRING, "able": BOOLEAN, "reason": maybe(STRING)})
    common = {key: COMMON[key] for key in ("schema_version", "ok")}
    return record(common | {"platform": STRING, "components": rows(component), "abilities": rows(ability)})


def sweep_schema() -> Schema:
    """A document of `execute` a size, without its first members, and what was kept."""
    graph: Schema = {"type": "object", "properties": {"kernels": rows(ref("kernel_row"))}, "required": ["kernels"]}
    common = {key: COMMON[key] for key in ("schema_version", "ok")}
    kept = record(dict.fromkeys(("hits", "plans", "evictions"), COUNT))
    return record(common | {"sizes": rows(record({"dims": mapping(COUNT), "run": graph})), "kept": kept})


def several_schema() -> Schema:
    """A document of `execute` a graph, without its first members, and the memory of all."""
    memory = dict.fromkeys(("static_bytes", "arena_bytes", "peak_bytes", "apart_bytes", "measured_peak_bytes"), COUNT)
    common = {key: COMMON[key] for key in ("schema_version", "ok")}
    graph: Schema = {"type": "object", "properties": {"kernels": rows(ref("kernel_row"))}, "required": ["kernels"]}
    return record(common | {"graphs": rows(graph), "memory": record(memory)})


def dump_check_schema() -> Schema:
    """What a dump configuration says; null: all."""
    dump = record(
        {
            "enabled": BOOLEAN,
            "folder": STRING,
            "kernels": maybe(rows(STRING)),
            "parts": rows({"enum": ["inputs", "outputs"]}),
            "iterations": maybe(rows(rows(COUNT))),
            "devices": rows(COUNT),
        }
    )
    return record({key: COMMON[key] for key in ("schema_version", "ok")} | {"dump": dump})


def run_op_schema() -> Schema:
    """One of the two documents: all operators, or one with the devices that run it."""
    bounds = record({"least": COUNT, "most": maybe(COUNT)})
    attribute = record(
        {"name": STRING, "kind": STRING, "required": BOOLEAN, "default": {}, "choices": rows(STRING)},
    )
    members = {
        "name": STRING,
        "family": STRING,
        "inputs": bounds,
        "outputs": bounds,
        "dtypes": rows(STRING),
        "host_inputs": rows(COUNT),
        "dynamic": BOOLEAN,
        "view_of": maybe(COUNT),
        "attributes": rows(attribute),
    }
    common = {key: COMMON[key] for key in ("schema_version", "ok")}
    one = record(members | {"devices": mapping(BOOLEAN)})
    return {"anyOf": [record(common | {"operators": rows(record(members))}), record(common | {"operator": one})]}
