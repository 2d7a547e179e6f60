"""Places of faults in the user's files."""

from __future__ import annotations

from kgrun.graphs.errors import LatePlace, Place


def test_a_late_place_looks_for_its_line_when_it_is_asked() -> None:
    asked: list[object] = []

    def locate(path: object) -> tuple[int, int] | None:
        asked.append(path)
        return (7, 3) if path == ("nodes", 0) else None

    place, nowhere = LatePlace("g.yaml", ("nodes", 0), locate), LatePlace("g.yaml", ("x",), locate)
    assert asked == []
    assert (place.line, place.column) == (7, 3)
    assert str(place) == "g.yaml: nodes[0] (line 7, column 3)"
    assert (nowhere.line, nowhere.column) == (None, None)
    assert place == Place("g.yaml", ("nodes", 0), 7, 3) == place
    assert Place("g.yaml", ("nodes", 0), 7, 4) != place
    assert len({place, Place("g.yaml", ("nodes", 0), 7, 3)}) == 1
    assert place != "g.yaml"
