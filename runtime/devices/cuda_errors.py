"""What CUDA's errors mean: names, whether the context survives them, and what a user can do."""

from __future__ import annotations

from kgrun.graphs.errors import CompileError, DeviceFault, DoesNotFit, KgrunError
from kgrun.graphs.records import dataclass


@dataclass(frozen=True, slots=True)
class CudaError:
    """One driver error.

    Attributes:
        text: as the driver's own description has it; PyCUDA passes on this text alone.
        name, number: the driver's.
        sticky: whether the context is lost and every later call fails with the same error.
        help: what it usually means.
    """

    text: str
    name: str
    number: int
    sticky: bool
    help: str


_ADDRESS = "an access outside of allocated memory: check indices against the shapes, and the guard for the last block"
ERRORS: tuple[CudaError, ...] = (
    CudaError("an illegal memory access was encountered", "CUDA_ERROR_ILLEGAL_ADDRESS", 700, True, _ADDRESS),
    CudaError(
        "misaligned address",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        716,
        True,
        "a vector access (float4, int4 …) needs an address that is a multiple of its size",
    ),
    CudaError(
        "unspecified launch failure",
        "CUDA_ERROR_LAUNCH_FAILED",
        719,
        True,
        "the kernel raised an exception on the device, often a bad access to shared or local memory",
    ),
    CudaError(
        "device-side assert triggered",
        "CUDA_ERROR_ASSERT",
        710,
        True,
        "an assert() in the kernel failed; its message stands above",
    ),
    CudaError(
        "an illegal instruction was encountered",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        715,
        True,
        "a trap, or code for another architecture",
    ),
    CudaError(
        "hardware stack error",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        714,
        True,
        "the call stack overflowed: recursion too deep",
    ),
    CudaError(
        "operation not supported on global/shared address space",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        717,
        True,
        "an instruction for one memory space was given an address of another",
    ),
    CudaError("invalid program counter", "CUDA_ERROR_INVALID_PC", 718, True, "a jump outside of the code"),
    CudaError(
        "the launch timed out and was terminated",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        702,
        True,
        "the kernel ran longer than the display driver allows",
    ),
    CudaError(
        "uncorrectable ECC error encountered", "CUDA_ERROR_ECC_UNCORRECTABLE", 214, True, "the GPU's memory is damaged"
    ),
    CudaError(
        "too many resources requested for launch",
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        701,
        False,
        "the block needs more registers than there are: make it smaller, or compile with --maxrregcount",
    ),
    CudaError(
        "too many blocks in cooperative launch",
        "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        720,
        False,
        "all blocks of a cooperative launch must be resident at once: make the grid smaller",
    ),
    CudaError(
        "invalid argument",
        "CUDA_ERROR_INVALID_VALUE",
        1,
        False,
        "the driver refused the launch: check grid, block, shared and the arguments",
    ),
    CudaError("out of memory", "CUDA_ERROR_OUT_OF_MEMORY", 2, False, "free memory, or set --memory-limit"),
    CudaError(
        "the provided PTX was compiled with an unsupported toolchain.",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        222,
        False,
        "compile to a cubin for this GPU, or update the driver",
    ),
    CudaError(
        "a PTX JIT compilation failed", "CUDA_ERROR_INVALID_PTX", 218, False, "the PTX is malformed; see the JIT's log"
    ),
    CudaError(
        "no kernel image is available for execution on the device",
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        209,
        False,
        "the cubin is for another architecture",
    ),
    CudaError(
        "device kernel image is invalid", "CUDA_ERROR_INVALID_IMAGE", 200, False, "the file is no cubin, or is damaged"
    ),
    CudaError("named symbol not found", "CUDA_ERROR_NOT_FOUND", 500, False, "no kernel of that name is in the code"),
)


def find_error(exception: BaseException) -> CudaError | None:
    """The driver error that `exception` carries, None for anything else."""
    text = str(exception).partition("failed: ")[2] or str(exception)
    for row in ERRORS:
        if text.startswith(row.text) or row.name in text:
            return row
    return None


def translate(exception: BaseException, doing: str, *, image: bool = False) -> KgrunError:
    """`exception` of a driver call as the error a user sees; `doing` says what was tried.

    Args:
        image: whether code was being loaded: then the fault is the code's (exit 5), not the device's.
    """
    if isinstance(exception, KgrunError):
        return exception
    row = find_error(exception)
    said = str(exception).strip().splitlines()[0] if str(exception).strip() else type(exception).__name__
    message = f"{doing}: {row.text.rstrip('.')} ({row.name})" if row else f"{doing}: {said}"
    help = row.help if row else None
    details = {"cuda_error": row.name, "cuda_code": row.number} if row else {}
    if row and row.number == 2:
        return DoesNotFit(message, code="KG410", help=help, details=details)
    if image and not (row and row.sticky):
        return CompileError(message, code="KG503", help=help, details=details)
    return DeviceFault(message, code="KG601" if row and row.sticky else "KG600", help=help, details=details)


def is_sticky(exception: BaseException) -> bool:
    """Whether the context is lost: its objects cannot be destroyed one by one any more."""
    row = find_error(exception)
    return row is not None and row.sticky
