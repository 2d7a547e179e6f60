"""A stand-in for `pycuda.driver` with PyCUDA's own rules for contexts: a stack, warnings for objects that outlive one.

`warned` collects what PyCUDA would print; a context still on `stack` at exit is what it aborts for.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np


class Error(Exception):
    """PyCUDA's base error."""


class FakePyCuda(types.ModuleType):
    """The module. `lost` makes every call fail as after a sticky fault; `fail` names one call that fails once."""

    Error = Error

    def __init__(self, devices: int = 2) -> None:
        super().__init__("pycuda.driver")
        self.devices = devices
        self.stack: list[Any] = []
        self.retained: dict[int, int] = {}
        self.warned: list[str] = []
        self.live: set[str] = set()
        self.lost = False
        self.fail: str | None = None
        self.names = 0
        attributes = ("NUM_REGS", "SHARED_SIZE_BYTES", "MAX_THREADS_PER_BLOCK", "MAX_DYNAMIC_SHARED_SIZE_BYTES")
        self.function_attribute = types.SimpleNamespace(**{name: name for name in attributes})
        limits = ("MAX_SHARED_MEMORY_PER_BLOCK", "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self.device_attribute = types.SimpleNamespace(**{name: name for name in limits})
        fake = self

        class Device:
            def __init__(self, index: int) -> None:
                self.index = index

            @staticmethod
            def count() -> int:
                return fake.devices

            def name(self) -> str:
                return f"GPU {self.index}"

            def compute_capability(self) -> tuple[int, int]:
                return 9, 0

            def total_memory(self) -> int:
                return 1 << 37

            def get_attribute(self, name: str) -> int:
                return 232_448 if name.endswith("OPTIN") else 49_152

            def retain_primary_context(self) -> Context:
                fake.call("retain")
                fake.retained[self.index] = fake.retained.get(self.index, 0) + 1
                return Context(self.index)

        class Context:
            def __init__(self, index: int) -> None:
                self.index, self.handle, self.valid = index, 0, True

            def push(self) -> None:
                fake.call("push")
                fake.stack.append(self)

            def pop(self) -> None:
                fake.call("pop")
                fake.stack.pop()

            def detach(self) -> None:
                if fake.lost:
                    fake.warned.append("muted: detach")
                self.valid = False
                fake.retained[self.index] -= 1
                while fake.stack and not fake.stack[-1].valid:
                    fake.stack.pop()

        class Owned:
            """Anything that belongs to the current context and must be destroyed in it."""

            def __init__(self, kind: str) -> None:
                fake.call(kind)
                fake.names += 1
                self.name, self.context = f"{kind}{fake.names}", fake.stack[-1]
                fake.live.add(self.name)

            def __del__(self) -> None:
                if getattr(self, "name", "") in fake.live and self.context.valid and fake.lost:
                    fake.warned.append(self.name)
                fake.live.discard(getattr(self, "name", ""))

        class Stream(Owned):
            handle = 11

            def __init__(self, flags: int) -> None:
                super().__init__("stream")

            def synchronize(self) -> None:
                fake.call("synchronize")

            def is_done(self) -> bool:
                return True

        class Allocation(Owned):
            def __int__(self) -> int:
                return 4_096 + 512 * int(self.name.removeprefix("alloc"))

            def free(self) -> None:
                fake.call("free")
                fake.live.discard(self.name)

        class Module(Owned):
            def get_function(self, name: str) -> Any:
                return types.SimpleNamespace(
                    get_attribute=lambda what: 1_024 if what == "MAX_THREADS_PER_BLOCK" else 0,
                    set_attribute=lambda what, value: None,
                    _launch_kernel=lambda *args: fake.call("launch"),
                    module=self,
                )

        self.Device, self.Stream = Device, Stream
        self.mem_alloc = lambda nbytes: Allocation("alloc")
        self.module_from_buffer = lambda image, message_handler=None: Module("module")
        self.pagelocked_empty = lambda nbytes, dtype: np.empty(nbytes, dtype)
        self.mem_get_info = lambda: (1 << 30, 1 << 37)
        self.get_driver_version = lambda: 13_000
        self.init = lambda: self.call("init")
        for name in ("memcpy_htod_async", "memcpy_dtoh_async", "memcpy_dtod_async", "memset_d8_async"):
            setattr(self, name, lambda *args, name=name: self.call(name))

    def call(self, name: str) -> None:
        """Every driver call passes here."""
        if self.lost:
            raise Error(f"{name} failed: an illegal memory access was encountered")
        if self.fail == name:
            self.fail = None
            raise Error(f"{name} failed: invalid argument")
