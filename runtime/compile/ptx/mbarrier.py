"""mbarrier: split arrive and wait on a 64-bit word of shared memory, as `cuda::barrier` uses it on sm_80."""

from __future__ import annotations

from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.memory import ATOMIC, WRITE, copy_async, pointer, space_of
from kgrun.runtime.compile.ptx.rules import Rule
from kgrun.runtime.compile.ptx.syntax import Instruction


def mbarrier(e: Emitter, i: Instruction) -> None:
    """init, inval, arrive, arrive_drop, test_wait and try_wait, by phase token or by parity."""
    operation = i.parts[1]
    if "expect_tx" in i.parts or operation in ("expect_tx", "complete_tx") or "cluster" in i.parts:
        raise e.fail(i.opcode)
    answers = operation not in ("init", "inval")
    target, operands = (i.operands[0], i.operands[1:]) if answers else ("_", i.operands)
    space = "shared" if any(part.startswith("shared") for part in i.parts) else space_of(i)
    # Waiting is no access of a datum: the runtime orders the threads by the release and acquire that it notes here.
    place = pointer(e, i, operands[0], space, 8, WRITE | ATOMIC if answers else WRITE)
    address = e.value(f"ptrtoint ptr {place} to i64")
    if operation in ("init", "inval"):
        count = e.read(operands[1], "i32") if operation == "init" else "0"
        e.runtime("kg_mbarrier_init", "void", ("i64", address), ("i32", count))
    elif operation in ("arrive", "arrive_drop"):
        count = e.read(operands[1], "i32") if len(operands) > 1 else "1"
        drop = str(int(operation == "arrive_drop"))
        e.write(target, e.runtime("kg_mbarrier_arrive", "i64", ("i64", address), ("i32", count), ("i32", drop)), "i64")
    elif operation in ("test_wait", "try_wait"):
        by_parity = "parity" in i.parts
        token = e.value(f"zext i32 {e.read(operands[1], 'i32')} to i64") if by_parity else e.read(operands[1], "i64")
        arguments = (("i64", address), ("i64", token), ("i32", str(int(by_parity))))
        done = e.runtime("kg_mbarrier_test", "i32", *arguments)
        e.write(target, e.value(f"icmp ne i32 {done}, 0"), "i1")
    else:
        raise e.fail(i.opcode)


def copy(e: Emitter, i: Instruction) -> None:
    """cp.async, and cp.async.mbarrier.arrive: the thread's copies, which are done by now, arrive at a barrier."""
    if "mbarrier" not in i.parts:
        copy_async(e, i)
        return
    place = pointer(e, i, i.operands[0], "shared", 8, WRITE | ATOMIC)
    if "noinc" in i.parts:  # else the barrier would first wait for one more: nothing changes
        address = e.value(f"ptrtoint ptr {place} to i64")
        e.runtime("kg_mbarrier_arrive", "i64", ("i64", address), ("i32", "1"), ("i32", "0"))


RULES: dict[str, Rule] = {"mbarrier": mbarrier, "cp": copy}
