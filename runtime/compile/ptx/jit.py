"""LLVM IR to callable machine code: compiled in a worker process, cached on disk, loaded here."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from kgrun.graphs.errors import DeviceUnavailable, InternalError
from kgrun.runtime.compile.cache import CompileCache, digest_key
from kgrun.runtime.compile.ptx import worker

_INSTALL = "pip install 'kgrun[cpu]'"
_idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
_all: list[subprocess.Popen[bytes]] = []
_lock = threading.Lock()
_loading = threading.RLock()


class LoadedCode:
    """Machine code in this process; it stays for the process's life."""

    def __init__(self, object_code: bytes) -> None:
        with _loading:  # LLVM's tables of targets and symbols are the process's
            binding = _binding()
            self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), worker.target_machine(binding))
            self._engine.add_object_file(binding.ObjectFileRef.from_data(object_code))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        with _loading:
            return int(self._engine.get_function_address(name))


def share(name: str, address: int) -> None:
    """Let code loaded from now on call `name`."""
    with _loading:
        _binding().add_symbol(name, address)


def compile_ir(ir: str, store: CompileCache | None) -> bytes:
    """Object code for `ir`, from `store` where it has it; vectorised, or not where LLVM dies of that."""
    key = digest_key(["jit-object", identity(), ir])
    if store and (found := store.get(key)) is not None:
        return found
    code = _in_worker(ir, True)
    if code is None:
        code = _in_worker(ir, False)
    if code is None:
        raise InternalError("LLVM ended abnormally on a kernel", help="please report the kernel; --device cuda runs it")
    if store:
        store.put(key, code)
    return code


def identity() -> str:
    """What the generated code depends on beside its IR: LLVM and the processor."""
    with _loading:
        return _identity()


@cache
def _identity() -> str:
    binding = _binding()
    features = binding.get_host_cpu_features().flatten()
    return f"{binding.llvm_version_info} {binding.get_host_cpu_name()} {features}"


@cache
def _binding() -> Any:
    try:
        from llvmlite import binding
    except ImportError as error:
        raise DeviceUnavailable(
            f"kernels cannot run on the CPU: llvmlite is not installed ({error})", code="KG702", help=_INSTALL
        ) from error
    return binding


def _start() -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, "-P", str(Path(worker.__file__))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,  # Ctrl-C is for us: a worker ends when its pipe does
    )
    with _lock:
        _all.append(process)
    return process


def _take() -> subprocess.Popen[bytes]:
    """An idle compiler process that still lives, or a new one."""
    with contextlib.suppress(Empty):
        while True:
            process = _idle.get_nowait()
            if process.poll() is None:
                return process
            _end(process)
    return _start()


def _in_worker(ir: str, vectorize: bool) -> bytes | None:
    """The object code, or None where the worker died; raises `InternalError` for IR that LLVM refuses."""
    process = _take()
    assert process.stdin
    assert process.stdout
    answer = None
    with contextlib.suppress(OSError):
        worker.write_frame(process.stdin, json.dumps({"ir": ir, "vectorize": vectorize}).encode())  # type: ignore[arg-type]
        answer = worker.read_frame(process.stdout)  # type: ignore[arg-type]
    if answer is None:
        _end(process)
        return None
    _idle.put(process)
    if answer[:1] == b"e":
        raise InternalError(f"LLVM refused the code made from a kernel: {answer[1:].decode()[:400]}")
    return answer[1:]


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if pipe:
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=2)
    if process.poll() is None:
        process.kill()
        process.wait()
    with _lock:
        if process in _all:
            _all.remove(process)


@atexit.register
def _end_all() -> None:
    for process in _all:
        _end(process)
