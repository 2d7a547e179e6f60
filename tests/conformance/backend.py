"""kgrun as ONNX's test suite calls a backend: what is unsupported is skipped, in the open, with its reason."""

from __future__ import annotations

import unittest
from typing import Any

from onnx.backend.base import Backend, BackendRep

from kgrun.runtime.onnx_backend import PreparedModel, UnsupportedModel, prepare, supports_device


class Rep(BackendRep):  # type: ignore[misc]  # onnx has no types
    """A prepared model.

    Skips by unittest's SkipTest: the suite counts its own BackendIsNotSupposedToImplementIt as passed.
    """

    def __init__(self, prepared: PreparedModel) -> None:
        self.prepared = prepared

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs."""
        try:
            return self.prepared.run(inputs)
        except UnsupportedModel as error:
            raise unittest.SkipTest(str(error)) from None
        finally:
            self.prepared.close()


class KgrunBackend(Backend):  # type: ignore[misc]
    """What `onnx.backend.test.BackendTest` drives."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Rep:
        """A model ready to run."""
        return Rep(prepare(model, device))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether there is such a device here."""
        return supports_device(device)
