"""Data queues: batches from files or Python, copied to the device ahead of the runs that take them."""

from kgrun.runtime.queues.settings import QueueFeed

__all__ = ["QueueFeed"]
