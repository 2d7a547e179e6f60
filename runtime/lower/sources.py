"""The code of custom kernels: each file read once, each kernel's record made once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kgrun.graphs.data_paths import inside
from kgrun.graphs.errors import GraphError, Place
from kgrun.runtime.program import KernelCode

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.graphs.schema.kernels import KernelSpec


class KernelSources:
    """The kernels of one graph, by name."""

    def __init__(self, graph: KernelGraph) -> None:
        self._graph = graph
        self._codes: dict[str, KernelCode] = {}
        self._files: dict[Path, bytes | str] = {}

    def code(self, name: str) -> KernelCode:
        """The code of kernel `name`.

        Raises:
            GraphError: KG372 for a file that cannot be read, KG371 for one outside the graph's folder.
        """
        if name not in self._codes:
            self._codes[name] = self._make(name, self._graph.kernels[name])
        return self._codes[name]

    def _make(self, name: str, spec: KernelSpec) -> KernelCode:
        graph = self._graph
        place = graph.place("kernels", name, "source")
        include_dirs = (graph.folder, *(graph.folder / d for d in spec.include_dirs))
        options = tuple(spec.options)
        if spec.inline:
            language = spec.language if spec.language != "auto" else _language_of_text(spec.source)
            label = f"{graph.file or 'graph'}: kernels.{name}.source"
            return KernelCode(spec.source, None, language, label, spec.entry, options, include_dirs, name)
        try:
            path = inside(spec.source, folder=graph.folder, allow_external=graph.allows_external_data)
        except GraphError as error:
            raise error.at(place) from None
        content = self._read(path, spec.source, place)
        language = spec.language if spec.language != "auto" else _language_of_file(path, content)
        if language == "cubin":
            image = content if isinstance(content, bytes) else content.encode()
            return KernelCode(
                self._ptx(name, spec), image, language, str(path), spec.entry, options, include_dirs, name
            )
        if isinstance(content, bytes):
            raise GraphError(f"kernel source {spec.source!r} is not UTF-8 text", code="KG372", where=place)
        return KernelCode(content, None, language, str(path), spec.entry, options, include_dirs, name)

    def _ptx(self, name: str, spec: KernelSpec) -> str | None:
        """The PTX that stands for a cubin where no GPU is."""
        if spec.ptx is None:
            return None
        place = self._graph.place("kernels", name, "ptx")
        try:
            path = inside(spec.ptx, folder=self._graph.folder, allow_external=self._graph.allows_external_data)
        except GraphError as error:
            raise error.at(place) from None
        text = self._read(path, spec.ptx, place)
        if isinstance(text, bytes):
            raise GraphError(f"kernel source {spec.ptx!r} is not UTF-8 text", code="KG372", where=place)
        return text

    def _read(self, path: Path, source: str, place: Place) -> bytes | str:
        """The file as text where it is UTF-8, else as bytes; kernels of one file share one object."""
        if path not in self._files:
            try:
                data = path.read_bytes()
            except OSError as error:
                reason = error.strerror or "cannot be read"
                raise GraphError(f"kernel source {source!r}: {reason}", code="KG372", where=place) from None
            try:
                self._files[path] = data.decode()
            except UnicodeDecodeError:
                self._files[path] = data
        return self._files[path]


def _language_of_file(path: Path, content: bytes | str) -> str:
    if path.suffix == ".cubin" or (isinstance(content, bytes) and content.startswith(b"\x7fELF")):
        return "cubin"
    return "ptx" if path.suffix == ".ptx" else "cuda"


def _language_of_text(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("//")), "")
    return "ptx" if first.startswith(".version") else "cuda"
