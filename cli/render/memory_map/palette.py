"""Colours of the memory classes on light and on dark ground, the same in all pictures."""

from __future__ import annotations

from kgrun.cli.render.memory_map.data import CLASSES

# Told apart by people with the common colour blindnesses too: hues differ, and so does lightness.
_COLOURS = {
    "input": ("#1b7f79", "#4fb9b0"),
    "parameter": ("#6d5bb3", "#a596e6"),
    "constant": ("#8a8f98", "#8f96a3"),
    "output": ("#b8447a", "#e083b0"),
    "intermediate": ("#4a86c5", "#5b9bdd"),
    "workspace": ("#d9822b", "#f0a24e"),
    "communication": ("#5a9e3d", "#86c766"),
    "buffer": ("#4a86c5", "#5b9bdd"),
}
assert tuple(_COLOURS) == CLASSES

LIGHT = [_COLOURS[name][0] for name in CLASSES]
DARK = [_COLOURS[name][1] for name in CLASSES]
