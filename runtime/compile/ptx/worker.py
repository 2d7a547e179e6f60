"""A process that turns LLVM IR into object code: an assertion in LLVM ends it, not the user's process.

Run by its path, it imports nothing of kgrun. Frames on stdin and stdout are an 8-byte length and that many bytes; a
request is a JSON object with `ir` and `vectorize`, an answer one status byte ("o" for an object) and data.
"""

from __future__ import annotations

import json
import struct
import sys
from typing import Any, BinaryIO


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame, or None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack("<Q", head)
    data = stream.read(length)
    return data if len(data) == length else None


def write_frame(stream: BinaryIO, data: bytes) -> None:
    stream.write(struct.pack("<Q", len(data)))
    stream.write(data)
    stream.flush()


def target_machine(binding: Any) -> Any:
    """The host's code generator, with everything its processor can do."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    features = binding.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features, opt=2, jit=True)


def compile_object(binding: Any, machine: Any, ir: str, vectorize: bool) -> bytes:
    """Optimise at O2 and emit an object file; raises RuntimeError where the IR is invalid."""
    module = binding.parse_assembly(ir)
    module.verify()
    tuning = binding.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = vectorize
    tuning.slp_vectorization = vectorize
    tuning.loop_unrolling = True
    builder = binding.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def main() -> None:
    from llvmlite import binding

    machine = target_machine(binding)
    reader, writer = sys.stdin.buffer, sys.stdout.buffer
    while (frame := read_frame(reader)) is not None:
        request = json.loads(frame)
        try:
            answer = b"o" + compile_object(binding, machine, request["ir"], request["vectorize"])
        except RuntimeError as error:
            answer = b"e" + str(error).encode()
        write_frame(writer, answer)


if __name__ == "__main__":
    main()
