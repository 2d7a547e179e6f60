"""Arrays given on the command line or to the API: `--input NAME=FILE` and `--inputs FILE.npz`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kgrun.graphs.data_arrays import Array
from kgrun.graphs.data_files import read_checked
from kgrun.graphs.data_paths import Reference, parse_reference
from kgrun.graphs.data_stored import stored_keys
from kgrun.graphs.errors import GraphError, Place, UsageError, did_you_mean, placed

# dtype and shape of a name that may be given, each None where it is not known yet.
Expected = tuple[str | None, tuple[int, ...] | None]


def load_inputs(given: Iterable[str], archives: Iterable[str], known: Mapping[str, Expected]) -> dict[str, Array]:
    """Arrays by name from `NAME=FILE` options and from archives (.npz, .safetensors) that hold several.

    FILE is `x.npy`, `x.npz#key`, `x.safetensors#key`, or an archive without a key for the array that bears the
    input's name. An option beats an archive. Paths start at the current folder and may lead anywhere.

    Raises:
        UsageError: KG271 for a name that the graph does not know, KG272 for a malformed option or a name given twice.
        GraphError: KG37x for the files.
    """
    arrays: dict[str, Array] = {}
    for archive in archives:
        _check_archive(archive)
        for key in stored_keys(Path(archive), _form(archive), archive):
            reference = Reference(archive, _form(archive), key)
            arrays[key] = _read(key, reference, f"{archive}#{key}", known, "--inputs")
    seen: set[str] = set()
    for option in given:
        name, file = _split(option, known)
        if name in seen:
            raise UsageError(f"input {name!r} is given twice", code="KG272", where=f"--input {option}")
        seen.add(name)
        try:
            reference = parse_reference(file, default_key=name)
        except GraphError as error:
            raise UsageError(error.message, code="KG272", where=f"--input {option}", help=error.help) from None
        arrays[name] = _read(name, reference, file, known, "--input")
    return arrays


def _read(name: str, reference: Reference, text: str, known: Mapping[str, Expected], option: str) -> Array:
    if name not in known:
        listed = ", ".join(list(known)[:10]) or "none"
        raise UsageError(
            f"the graph has no input {name!r}",
            code="KG271",
            where=f"{option} {text}",
            help=did_you_mean(name, known) or f"inputs: {listed}",
        )
    with placed(Place(f"{option} {name}={text}")):
        return read_checked(Path(reference.file), reference, *known[name], text)


def _split(option: str, known: Mapping[str, Expected]) -> tuple[str, str]:
    """Name and file; a name may hold `=` itself."""
    ends = [i for i, character in enumerate(option) if character == "="]
    end = next((i for i in ends if option[:i] in known), ends[0] if ends else 0)
    if not end or end == len(option) - 1:
        raise UsageError(f"{option!r} is not NAME=FILE", code="KG272", where="--input")
    return option[:end], option[end + 1 :]


def _form(archive: str) -> str:
    return "safetensors" if archive.lower().endswith(".safetensors") else "npz"


def _check_archive(archive: str) -> None:
    if not archive.lower().endswith((".npz", ".safetensors")):
        raise UsageError(
            f"{archive!r} is not an .npz or .safetensors file",
            code="KG272",
            where="--inputs",
            help="give a single array with --input NAME=FILE",
        )
