"""The one place that holds kgrun's version; imports nothing, so that `kgrun --version` costs nothing."""

__version__ = "0.1.0"
