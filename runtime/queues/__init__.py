"""Data queues: batches from files or Python, copied to the device ahead of the runs that take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgrun.graphs.late import late_names

if TYPE_CHECKING:
    from kgrun.runtime.queues.settings import QueueFeed

__all__ = ["QueueFeed"]

# Late: few graphs have queues.
__getattr__ = late_names(__name__, {"settings": "QueueFeed"})
