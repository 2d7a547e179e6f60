"""Collectives through NCCL: a job of one rank on one GPU, and of several where there are GPUs for them.

One rank moves nothing over a link, but its calls are real: addresses, counts, types, groups, communicators, captures.
NCCL from 2.30 on lets several ranks share a GPU if NCCL_MULTI_RANK_GPU_ENABLE is 1; they then do all that ranks do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.collectives import world
from kgrun.runtime.collectives.launch import launch
from kgrun.runtime.collectives.ranks import RankInfo
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.devices.cuda_graph import _call as driver_call
from kgrun.runtime.devices.cuda_nccl import Nccl
from kgrun.runtime.devices.cuda_pycuda import load_pycuda
from kgrun.runtime.program import LibraryCall, Pointer
from tests.runtime.collectives import test_faults
from tests.runtime.collectives.operator_cases import check
from tests.runtime.collectives.test_alone import LAUNCHERS
from tests.support import graph, node, tensor

nccl = pytest.importorskip("nccl.bindings.nccl", reason="needs nccl4py (pip install 'kgrun[nccl]')")
ROOT = Path(__file__).parents[2]
PROGRAM = str(ROOT / "tests/runtime/collectives/rank_program.py")
SHARED_GPU = 23_000  # the first version that lets ranks share one
CALLS = (
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "send",
    "recv",
    "group_start",
    "group_end",
)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> world.World:
    """A job of one rank."""
    monkeypatch.setattr(world, "_current", None)
    return world.enter(RankInfo(0, 1, 0))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What NCCL is called with, by name and in order."""
    made: list[tuple[Any, ...]] = []

    def watched(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            made.append((name, *arguments))
            return original(*arguments)

        return call

    for name in CALLS:
        monkeypatch.setattr(nccl, name, watched(name, getattr(nccl, name)))
    return made


def ranks(count: int) -> tuple[str, dict[str, str]]:
    """A device for each of so many ranks, and what they need to share one; skips where they cannot."""
    if load_pycuda().Device.count() >= count:
        return "cuda", {}
    if nccl.get_version() < SHARED_GPU:
        pytest.skip(f"{count} ranks need {count} GPUs, or NCCL 2.30, which lets them share one")
    return "cuda:0", {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}


def environment(more: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]), **more}


def test_S84_S85_S86_every_collective_of_one_rank_agrees_with_numpy(
    device: CudaDevice, job: world.World, calls: list[tuple[Any, ...]]
) -> None:
    check(job, device)
    assert {call[0] for call in calls} == set(CALLS)


def test_the_report_has_the_version_and_a_row_a_collective(device: CudaDevice, job: world.World) -> None:
    tensors = {name: tensor("input", (n,), "float32", init={"fill": 1}) for name, n in (("a", 1 << 20), ("b", 256))}
    rows = [node("sum", ["a", "b"], ["c", "d"], op="AllReduce"), node("all", ["b"], ["e"], op="AllGather")]
    with Session(graph(rows, tensors, ["c", "d", "e"]), device=device) as session:
        report = session.run(iterations=20)
    number = nccl.get_version()
    assert report.device.versions["nccl"] == f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    from kgrun.runtime.collectives.summary import collective_rows

    found = [(row.name, row.op, row.nbytes, row.ranks, row.bus_bytes_per_s) for row in collective_rows(report)]
    assert found == [("sum", "AllReduce", (4 << 20) + 1024, 1, None), ("all", "AllGather", 1024, 1, None)]
    times = [row.time_ns for row in collective_rows(report)]
    assert all(time is not None and time > 0 for time in times)


def test_S57_neighbours_are_one_call_of_the_plans_addresses(
    device: CudaDevice, job: world.World, calls: list[tuple[Any, ...]]
) -> None:
    sizes = (("a", 300), ("b", 5), ("c", 1024))
    tensors = {name: tensor("input", (n,), "float32") for name, n in sizes}
    rows = [node("sum", [*tensors], ["x", "y", "z"], op="AllReduce", attributes={"reduction": "avg"})]
    given = {name: np.arange(n, dtype=np.float32) for name, n in sizes}
    with Session(graph(rows, tensors, ["x", "y", "z"]), device=device) as session:
        report = session.run(given, iterations=3, warmup=1, poison=True)
        (step,) = session.program.steps
        assert isinstance(step.work, LibraryCall)
        places = [session.loaded.address(pointer) for pointer in step.work.args if pointer is not None]
    assert {call[0] for call in calls} == {"all_reduce"}
    _, source, target, count, kind, reduction, comm, stream = calls[0]
    assert (source, target, kind, reduction, stream) == (places[0], places[3], 7, 4, device.driver.stream)
    assert source + 4 * count == places[2] + 4 * 1024
    assert nccl.comm_count(comm) == 1
    assert nccl.comm_cu_device(comm) == device.info.index
    for name, result in zip(given, ("x", "y", "z"), strict=True):
        np.testing.assert_array_equal(report.outputs[result], given[name])


def test_what_is_sent_to_oneself_in_one_group_arrives(device: CudaDevice, job: world.World) -> None:
    library = Nccl(device.driver)
    data = np.random.default_rng(0).integers(0, 255, 5_000_001, np.uint8)
    source, target = device.allocate(data.nbytes), device.allocate(data.nbytes)
    common = {"dtype": "uint8", "itemsize": 1, "members": [0], "rank": 0, "peer": 0, "node": "n"}
    sizes, nothing = [data.nbytes], list[int]()
    send = LibraryCall("nccl", "send", common | {"counts": sizes, "result_counts": nothing}, (Pointer(0),))
    take = LibraryCall("nccl", "receive", common | {"counts": nothing, "result_counts": sizes}, (Pointer(0),))
    try:
        device.upload(source, data)
        device.fill(target, 0xCD, data.nbytes)
        out, back = library.prepare(send, lambda _: source), library.prepare(take, lambda _: target)
        nccl.group_start()
        out()
        back()
        nccl.group_end()
        got = np.empty_like(data)
        device.download(target, got)
        np.testing.assert_array_equal(got, data)
    finally:
        library.close(lost=False)
        device.free(source)
        device.free(target)


def overlapping(layers: int) -> KernelGraph:
    """A chain of kernels; beside each an AllToAll of what it made, which the chain does not wait for."""
    shape, rows, outputs = (1 << 18,), [], []
    for i in range(layers):
        rows.append(node(f"step{i}", [f"h{i}"], [f"h{i + 1}"], op="Neg"))
        rows.append(node(f"send{i}", [f"h{i + 1}"], [f"t{i}"], op="AllToAll"))
        outputs.append(f"t{i}")
    return graph(rows, {"h0": tensor("input", shape, "float32")}, [*outputs, f"h{layers}"])


@pytest.mark.parametrize("replay", [True, False])
def test_S7_S9_collectives_beside_compute_give_the_right_results(
    device: CudaDevice, job: world.World, replay: bool
) -> None:
    x = np.random.default_rng(1).standard_normal(1 << 18, np.float32)
    with Session(overlapping(4), device=device, graph_replay=replay) as session:
        assert (session.not_replayed is None) == replay
        for _ in range(3):
            report = session.run({"h0": x}, iterations=5, warmup=2, per_step=False, poison=True)
            for i in range(4):
                np.testing.assert_array_equal(report.outputs[f"t{i}"], x if i % 2 else -x)


def test_one_cuda_graph_has_the_communication_beside_the_compute(device: CudaDevice, job: world.World) -> None:
    with Session(overlapping(3), device=device) as session, ExitStack() as undo:
        assert session.not_replayed is None
        made: Any = session.loaded._capture(undo)
        nodes, edges = work_and_edges(made._replay._graph)
    after = reachable(edges)
    ours = [n for n, name in nodes.items() if "nccl" not in name.lower()]
    theirs = [n for n, name in nodes.items() if "nccl" in name.lower()]
    assert (len(ours), len(theirs)) == (3, 3), nodes
    chain = sorted(ours, key=lambda n: len(after[n]), reverse=True)
    moved = sorted(theirs, key=lambda n: len(after[n]), reverse=True)
    for i in range(3):
        assert moved[i] in after[chain[i]]  # what is moved has been made
        later = chain[i + 1 :]
        assert not any(moved[i] in after[n] for n in later)  # nothing later is waited for
        assert not any(n in after[moved[i]] for n in later)  # and nobody waits for it
    assert all(moved[i + 1] in after[moved[i]] for i in range(2))  # calls of one communicator stay in order


def work_and_edges(captured: Any) -> tuple[dict[int, str], list[tuple[int, int]]]:
    """The kernels and copies of a CUDA graph with their names, and all edges between its nodes."""
    from cuda.bindings import driver

    kinds = driver.CUgraphNodeType
    _, count = driver_call("cuGraphGetNodes", captured, 0)
    nodes, _ = driver_call("cuGraphGetNodes", captured, count)
    names = {}
    for each in nodes[:count]:
        kind = driver_call("cuGraphNodeGetType", each)
        if kind == kinds.CU_GRAPH_NODE_TYPE_KERNEL:
            found = driver_call("cuGraphKernelNodeGetParams", each)
            by_library = int(found.func) == 0
            name = (
                driver_call("cuKernelGetName", found.kern) if by_library else driver_call("cuFuncGetName", found.func)
            )
            names[int(each)] = str(name)
        elif kind == kinds.CU_GRAPH_NODE_TYPE_MEMCPY:
            names[int(each)] = "nccl may copy"
    *_, count = driver_call("cuGraphGetEdges", captured, 0)
    sources, targets, _, _ = driver_call("cuGraphGetEdges", captured, count)
    return names, [(int(a), int(b)) for a, b in zip(sources[:count], targets[:count], strict=True)]


def reachable(edges: list[tuple[int, int]]) -> dict[int, set[int]]:
    """By node, the nodes that wait for it, directly or not."""
    following: dict[int, list[int]] = {}
    for a, b in edges:
        following.setdefault(a, []).append(b)
        following.setdefault(b, [])
    found: dict[int, set[int]] = {}

    def walk(start: int) -> set[int]:
        if start not in found:
            found[start] = set()
            for each in following[start]:
                found[start] |= {each} | walk(each)
        return found[start]

    for each in following:
        walk(each)
    return found


@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="others take memory of the GPU meanwhile: run alone")
def test_sessions_come_and_go_over_one_communicator(device: CudaDevice, job: world.World) -> None:
    x = np.ones(1 << 18, np.float32)
    free = []
    for _ in range(12):
        with Session(overlapping(2), device=device) as session:
            session.run({"h0": x}, iterations=2, warmup=1, per_step=False)
        free.append(device.free_memory()[0])
    assert free[-1] == free[3], free


ABORT = """
import sys, threading, time
import numpy as np
from kgrun.graphs.errors import KgrunError
from kgrun.runtime import Session
from kgrun.runtime.collectives import world
from kgrun.runtime.collectives.ranks import RankInfo
from kgrun.runtime.devices.cuda import CudaDevice
from tests.gpu.test_gpu_collectives import overlapping
world.enter(RankInfo(0, 1, 0))
device = CudaDevice()
for replay in REPLAY:
    session = Session(overlapping(2), device=device, graph_replay=replay)
    session.run({"h0": np.ones(1 << 18, np.float32)}, iterations=3, warmup=1, per_step=False)
    library = device.libraries._open["nccl"]
    started = time.monotonic()
    thread = threading.Thread(target=library.abort)  # as the thread that listens to the others does
    thread.start()
    thread.join(5)
    print("listening:", not thread.is_alive())
    if not replay:
        try:
            session.run(iterations=1, warmup=0, per_step=False)
        except KgrunError as error:
            print(error.exit, error.code)
    session.close()
device.close()
library._abort.join(5)
print("aborted:", not library._abort.is_alive())
"""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("replay", [True, False])
def test_communicators_can_be_aborted_while_a_captured_graph_holds_them(replay: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABORT.replace("REPLAY", f"({replay},)")],
        cwd=ROOT, env=environment({}), capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    refused = "" if replay else "6 KG620\n"
    assert (done.stdout, done.returncode) == (f"listening: True\n{refused}aborted: True\n", 0), done.stderr


def kgrun(*words: str, env: dict[str, str]) -> dict[str, Any]:
    """The document of `kgrun execute examples/allreduce.yaml`, whose outputs are as expected."""
    command = [sys.executable, "-m", "kgrun.cli", "execute", "examples/allreduce.yaml", "--json", *words]
    command += ["--expected", "examples/data/allreduce.expected.npz", "--rtol", "1e-5", "--atol", "1e-6"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(env), capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.timeout(180)
@pytest.mark.parametrize("launcher", [*LAUNCHERS, "--ranks"])
def test_a_job_of_one_rank_is_nccls_however_it_is_started(launcher: str) -> None:
    words = ["--ranks", "1", "--timeout", "120"] if launcher == "--ranks" else []
    document = kgrun("--device", "cuda", *words, env=LAUNCHERS.get(launcher, {}))
    (row,) = document["collectives"]
    assert (row["op"], row["ranks"], row["nbytes"], row["bus_bytes_per_s"]) == ("AllReduce", 1, 2604, None)
    assert ("nccl" in document["device"]["versions"]) == (launcher != "nobody")
    assert document["device"]["kind"] == "cuda"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [2, 4])
def test_several_ranks_take_one_step_of_the_whole_batch(count: int) -> None:
    where, more = ranks(count)
    document = kgrun("--device", where, "--ranks", str(count), "--timeout", "140", env=more)
    assert document["collectives"][0]["ranks"] == count
    assert document["collectives"][0]["bus_bytes_per_s"] > 0
    assert [row["rank"] for row in document["ranks"]["ranks"]] == list(range(count))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [2, 4])
def test_S84_S85_S86_every_collective_of_several_ranks_agrees_with_numpy(count: int) -> None:
    where, more = ranks(count)
    done = launch([sys.executable, PROGRAM, where], count, 240.0, environment(more), mpi=False)
    assert done.error is None, (done.error.message, done.err)
    assert done.exits == dict.fromkeys(range(count), 0), done.err


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("fault", "exit"),
    [("die-measure", 6), ("die-greet", 6), ("die-settle", 6), ("hang-measure", 9), ("hang-settle", 9),
     ("other-graph", 6), ("throw-measure", 6)],
)  # fmt: skip
def test_a_fault_of_a_rank_ends_the_others(fault: str, exit: int, tmp_path: Path) -> None:
    where, more = ranks(2)
    done, _ = test_faults.run(fault, 1, 2, tmp_path, where, 40.0, **more)
    assert done.error is not None, done.err
    assert (done.error.exit, done.error.details["rank"]) == (exit, 1), (done.error.message, done.err)
    assert test_faults.left_running(tmp_path) == []
    assert not (tmp_path / "out").exists()
