"""Broken packing problems (minimalloc CSV)."""

from __future__ import annotations

import random
from collections.abc import Iterator

CELLS = (
    "",
    "0",
    "1",
    "-1",
    "7",
    "9" * 19,
    "9" * 400,
    "1e5",
    "1.5",
    "nan",
    "x",
    '"',
    '"a\nb"',
    " 3 ",
    "0x10",
    "é",
    "\0",
)
CELLS_OF_GAPS = ("1-2", "2-1", "0-0:3", "1-2 3-4", "-", "1-")
HEADERS = ("id", "lower", "upper", "size", "alignment", "gaps", "offset", "hint", "begin", "buffer", "", "id")


def csv_mutants(count: int, seed: int) -> Iterator[bytes]:
    """`count` small packing problems, each broken in one to three places; the same for the same `seed`."""
    chance = random.Random(seed)
    for _ in range(count):
        columns = [
            "id",
            "lower",
            "upper",
            "size",
            *chance.sample(["alignment", "gaps", "offset", "hint"], chance.randrange(3)),
        ]
        rows = [_row(columns, number, chance) for number in range(chance.choice((0, 1, 3, 30)))]
        table = [columns, *rows]
        for _ in range(chance.choice((1, 1, 2, 3))):
            _edit(table, chance)
        text = chance.choice(["\n", "\n", "\r\n"]).join(",".join(row) for row in table) + chance.choice(["\n", ""])
        data = text.encode("utf-8")
        if chance.random() < 0.1:
            at = chance.randrange(len(data) + 1)
            data = data[:at] + chance.choice([b"\xff", b"\xef\xbb\xbf", b"\x7fELF", b"PK\x03\x04", b"\0"]) + data[at:]
        yield data


def _row(columns: list[str], number: int, chance: random.Random) -> list[str]:
    lower = chance.randrange(20)
    cells = {
        "id": f"b{number}", "lower": str(lower), "upper": str(lower + 1 + chance.randrange(9)),
        "size": str(chance.randrange(1, 9000)), "alignment": chance.choice(["1", "256", "3"]),
        "gaps": "", "offset": "-1", "hint": "-1",
    }  # fmt: skip
    return [cells[column] for column in columns]


def _edit(table: list[list[str]], chance: random.Random) -> None:
    row = chance.choice(table)
    edit = chance.randrange(7)
    if edit == 0:
        table[0][chance.randrange(len(table[0]))] = chance.choice(HEADERS) if table[0] else ""
    elif edit < 4 and row:
        row[chance.randrange(len(row))] = chance.choice(CELLS + CELLS_OF_GAPS)
    elif edit == 4 and len(row) > 1:
        del row[chance.randrange(len(row))]
    elif edit == 5:
        row.append(chance.choice(CELLS))
    else:
        table.append(list(row))
