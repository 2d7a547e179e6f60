"""A failed run as a folder that runs again: graph, sources, data, versions, command."""

from kgrun.runtime.repro.bundle import LIMIT_BYTES, Bundle, Case, check_folder, write_bundle

__all__ = ["LIMIT_BYTES", "Bundle", "Case", "check_folder", "write_bundle"]
