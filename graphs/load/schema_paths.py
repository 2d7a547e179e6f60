"""Walks a path of keys and indices through the models' type annotations: which records stand there, which tags.

Validation errors name internal things (union tags, branch names) among the keys; with the annotations at hand they
can be told apart, and an unknown key can be compared with those that its record has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, Tag

from kgrun.graphs.errors import PathPart

Annotations = list[Any]


def step(annotations: Annotations, part: PathPart) -> Annotations:
    """What may stand at key or index `part` of a value of one of the `annotations`."""
    return [found for annotation in annotations for found in _step(annotation, part)]


def _step(annotation: Any, part: PathPart) -> Annotations:
    if _is_record(annotation):
        found = [f for n, f in annotation.model_fields.items() if (f.alias or n) == part]
        return [found[0].annotation] if found else []
    origin = get_origin(annotation)
    if origin is dict:
        return [get_args(annotation)[1]]
    if origin in (list, tuple):
        return list(get_args(annotation))
    return [found for branch in get_args(annotation) for found in _step(branch, part)]


def tagged(annotations: Annotations, tag: PathPart) -> Annotations:
    """The branches of a tagged union among `annotations` that carry `tag`."""
    return [found for annotation in annotations for found in _tagged(annotation, tag)]


def _tagged(annotation: Any, tag: PathPart) -> Annotations:
    if _is_record(annotation) or get_origin(annotation) in (dict, list, tuple):
        return []
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated and any(isinstance(a, Tag) and a.tag == tag for a in arguments[1:]):
        return [arguments[0]]
    return [found for branch in arguments for found in _tagged(branch, tag)]


def keys(annotations: Iterable[Any]) -> list[str]:
    """The keys of the records among `annotations`, in order."""
    found: dict[str, None] = {}
    for annotation in annotations:
        if _is_record(annotation):
            found |= dict.fromkeys(field.alias or name for name, field in annotation.model_fields.items())
        elif get_origin(annotation) not in (dict, list, tuple):
            found |= dict.fromkeys(keys(get_args(annotation)))
    return list(found)


def _is_record(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
