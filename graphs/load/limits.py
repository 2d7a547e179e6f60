"""Caps on what a graph file may hold; a file beyond one is refused with the cap named."""

from __future__ import annotations

# Bytes of the file. Weights belong in .npy, .npz and .safetensors files beside it.
MAX_BYTES = 256 << 20

# Levels of lists and mappings inside each other.
MAX_DEPTH = 100

# Values in the document: at some 100 bytes a value, this keeps the largest document under 1 GiB of memory.
MAX_VALUES = 5_000_000

# Values that YAML aliases add by repeating what their anchors name.
MAX_ALIASED_VALUES = 1_000_000

# Characters of one number.
MAX_NUMBER_LENGTH = 400

# Faults reported at once.
MAX_FAULTS = 100

# Batches of a queue, each of which has memory of its own.
MAX_CAPACITY = 65_536
