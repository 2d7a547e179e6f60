"""From a bound graph to a program for one kind of device: `lower`."""

from kgrun.runtime.lower.program import lower

__all__ = ["lower"]
