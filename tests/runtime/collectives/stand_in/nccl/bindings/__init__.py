"""The low-level bindings."""
