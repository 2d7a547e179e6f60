"""Builtin operators in numpy, a module a family."""
