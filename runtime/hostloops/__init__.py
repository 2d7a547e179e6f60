"""Compiled loops over host memory for which numpy takes many passes: the optional extension, as functions of arrays."""
