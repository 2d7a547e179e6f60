"""`python -m kgrun.cli`: the same as `kgrun`."""

from kgrun.cli.entry import process

process()
