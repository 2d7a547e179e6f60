"""Embedding caches: tables on the host, larger than any device, with the rows that runs use cached on the device."""
