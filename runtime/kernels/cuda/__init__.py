"""Builtin operators as CUDA kernels, a module a family."""
