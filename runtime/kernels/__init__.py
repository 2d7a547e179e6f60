"""Builtin operators as work for each kind of device."""
