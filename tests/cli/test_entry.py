"""The process's edge: version, help, exit codes, one error boundary, clean streams."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kgrun.graphs.errors import DoesNotFit, GraphError, InternalError, KgrunError, Place
from kgrun.graphs.version import __version__


def imported(process: Any, *arguments: str) -> set[str]:
    """Top-level modules that a command line imports."""
    code = (
        "import sys, kgrun.cli.entry as entry; entry.main(sys.argv[1:]);"
        "print('\\n' + ' '.join(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    return set(process(*arguments, code=code).err.splitlines()[-1].split())


def test_version_is_printed(process: Any) -> None:
    result = process("--version")
    assert (result.code, result.out, result.err) == (0, f"kgrun {__version__}\n", "")


def test_version_imports_nothing_heavy(process: Any) -> None:
    heavy = {"numpy", "pydantic", "pycuda", "typer", "rich", "yaml", "cuda", "llvmlite"}
    assert not imported(process, "--version") & heavy


def test_help_imports_no_library_of_the_commands(process: Any) -> None:
    assert not imported(process, "--help") & {"numpy", "pydantic", "pycuda", "rich", "yaml", "cuda", "llvmlite"}


def test_cli_01_no_arguments_is_help_and_exit_2(process: Any) -> None:
    nothing, asked = process(), process("--help")
    assert nothing.code == 2
    assert asked.code == 0
    assert nothing.out == asked.out
    assert asked.out.startswith("Usage: kgrun [OPTIONS] COMMAND [ARGS]...")


def test_help_lists_every_command_and_each_has_its_own(kgrun: Any) -> None:
    from kgrun.cli.app import COMMANDS

    page = kgrun("--help").out
    for name in COMMANDS:
        assert f"\n  {name} " in page
        assert kgrun(name, "--help").out.startswith(f"Usage: kgrun {name} ")


def test_unknown_command_is_usage_with_a_suggestion(kgrun: Any) -> None:
    result = kgrun("plan-memry", "x.json")
    assert result.code == 2
    assert result.err == "error[KG250]: no command 'plan-memry'\n  help: did you mean 'plan-memory'?\n"
    assert result.out == ""


def test_unknown_option_is_usage_with_a_suggestion(kgrun: Any) -> None:
    result = kgrun("validate", "x.json", "--allow-emty")
    assert result.code == 2
    assert result.err.splitlines() == [
        "error[KG250]: no option --allow-emty",
        "  help: did you mean --allow-empty or --allow-external-data?",
    ]


def test_usage_error_is_json_when_json_was_asked_for(kgrun: Any) -> None:
    result = kgrun("validate", "--json")
    document = result.json()
    assert result.code == 2
    assert result.err == ""
    assert document["ok"] is False
    assert document["schema_version"] == 1
    assert document["error"] == document["errors"][0]
    assert document["error"]["exit"] == 2
    assert document["error"]["message"] == "Missing argument 'GRAPH'"


def test_every_error_of_a_failure_is_reported(kgrun: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        second = GraphError("b is wrong", where=Place("g.json", ("nodes", 1)))
        raise GraphError("a is wrong", code="KG333", help="fix a", others=[second])

    monkeypatch.setattr("kgrun.cli.commands.validate.check_graph", fail)
    assert kgrun("validate", "g.json").err.splitlines() == [
        "error[KG333]: a is wrong",
        "  help: fix a",
        "error[KG300]: b is wrong",
        "  at g.json: nodes[1]",
    ]
    document = kgrun("validate", "g.json", "--json").json()
    assert [row["message"] for row in document["errors"]] == ["a is wrong", "b is wrong"]
    assert document["errors"][1]["where"] == "g.json: nodes[1]"


@pytest.mark.parametrize(
    ("raised", "code", "shown"),
    [
        (MemoryError(), 4, "error[KG410]: out of host memory"),
        (DoesNotFit("too big"), 4, "error[KG400]: too big"),
        (KeyboardInterrupt(), 130, "error[KG130]: interrupted"),
        (ZeroDivisionError("division by zero"), 1, "error[KG100]: internal error: ZeroDivisionError: division by zero"),
        (RecursionError("deep"), 1, "error[KG100]: internal error: RecursionError: deep"),
        (PermissionError(13, "Permission denied", "out.csv"), 2, "error[KG258]: out.csv: Permission denied"),
    ],
)
def test_any_exception_has_its_exit_code_and_no_traceback(
    kgrun: Any, monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, shown: str
) -> None:
    def fail(_: object) -> None:
        raise raised

    monkeypatch.setattr("kgrun.cli.commands.validate.check_graph", fail)
    result = kgrun("validate", "g.json")
    assert result.code == code
    assert result.err.splitlines()[0] == shown
    assert "Traceback" not in result.err
    assert kgrun("validate", "g.json", "--json").json()["error"]["exit"] == code


def test_debug_shows_the_traceback(kgrun: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("kgrun.cli.commands.validate.check_graph", fail)
    assert "KGRUN_DEBUG=1" in kgrun("validate", "g.json").err
    monkeypatch.setenv("KGRUN_DEBUG", "1")
    assert "Traceback (most recent call last)" in kgrun("validate", "g.json").err


def test_codes_and_exits_agree() -> None:
    for kind in (*KgrunError.__subclasses__(), InternalError):
        first = {0: 0, 10: 0, 130: 1}.get(kind.exit, kind.exit)
        assert kind.default_code[2] == str(first), kind


def test_control_characters_of_a_message_are_escaped(kgrun: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise GraphError("bad name \x1b[31mred\x07")

    monkeypatch.setattr("kgrun.cli.commands.validate.check_graph", fail)
    assert kgrun("validate", "g.json").err == "error[KG300]: bad name \\x1b[31mred\\x07\n"


@pytest.mark.parametrize("words", ["schema", "--version", "--help", "execute --help", ""])
def test_reader_that_goes_away_is_no_error(process: Any, words: str) -> None:
    code = (
        "import os, sys; reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1);"
        f"import kgrun.cli.entry as entry; sys.exit(entry.main({words.split()}))"
    )
    result = process(code=code)
    assert (result.code, result.err) == (0, "")


def test_a_pipe_that_breaks_inside_kgrun_is_not_taken_for_its_output(
    kgrun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("kgrun.cli.commands.validate.check_graph", fail)
    assert kgrun("validate", "g.json").code == 1


full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@full_disk
@pytest.mark.parametrize("words", [["schema"], ["schema", "--json"], ["--version"], ["--help"]])
def test_full_disk_is_said(process: Any, words: list[str]) -> None:
    code = (
        "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1);"
        f"import kgrun.cli.entry as entry; sys.exit(entry.main({words}))"
    )
    result = process(code=code)
    assert result.code == 2
    assert result.err.startswith("error[KG258]: cannot write ")
    assert result.err.endswith(": No space left on device\n")


@full_disk
def test_an_error_that_has_no_room_on_stdout_is_told_on_stderr(process: Any) -> None:
    code = (
        "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1);"
        "import kgrun.cli.entry as entry; sys.exit(entry.main(['validate', 'none.json', '--json']))"
    )
    result = process(code=code)
    assert result.code == 3
    assert result.err.startswith("error[KG301]: no such file\n")
    assert "error[KG258]: cannot write to standard output" in result.err


@pytest.mark.parametrize("closed", ["0", "1", "2", "1, 2", "0, 1, 2"])
@pytest.mark.parametrize("words", [["validate"], ["validate", "--json"], ["execute", "--device", "cpu"]])
def test_streams_that_are_closed_take_nothing_away(
    graph_file: Any, tmp_path: Path, closed: str, words: list[str]
) -> None:
    names = ("--csv", str(tmp_path / "rows.csv"))
    code = f"import os, sys\nfor n in ({closed},): os.close(n)\nos.execv(sys.executable, sys.argv[1:])"
    start = [sys.executable, "-c", code, sys.executable, "-m", "kgrun.cli", words[0], str(graph_file()), *words[1:]]
    done = subprocess.run([*start, *names], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == ("1" not in closed)
    assert (tmp_path / "rows.csv").read_text().count("\n") > 1


@pytest.mark.parametrize("watched", [["-m", "cProfile", "-m", "kgrun.cli"], ["-c", "{run}; print('after')"]])
def test_who_started_the_command_from_python_gets_its_end(watched: list[str]) -> None:
    run = (
        "import runpy, sys\ntry: runpy.run_module('kgrun.cli', run_name='__main__')\n"
        "except SystemExit as end: print('exit', end.code)"
    )
    words = [word.replace("{run}; ", run + "\n") for word in watched]
    done = subprocess.run(
        [sys.executable, *words, "--version"], capture_output=True, text=True, timeout=100, check=True
    )
    version, _, rest = done.stdout.partition("\n")
    assert version == f"kgrun {__version__}"
    assert "function calls" in rest or rest == "exit 0\nafter\n"


def test_names_that_the_terminal_cannot_show(process: Any, graph_file: Any) -> None:
    path = graph_file("tiny.json", name="größe")
    result = process("validate", path, env={"PYTHONIOENCODING": "ascii"})
    assert result.code == 0
    assert result.out == "gr\\xf6\\xdfe: valid; 2 nodes, 3 tensors, 0 kernels, 0 warnings\n"
    document = json.loads(process("validate", path, "--json", env={"PYTHONIOENCODING": "ascii"}).out)
    assert document["graph"]["name"] == "größe"


def test_tvm_02_wrong_kind_of_file(kgrun: Any, tmp_path: Path) -> None:
    path = tmp_path / "kernel.cubin"
    path.write_bytes(b"\x7fELF" + bytes(60))
    assert kgrun("validate", path).code == 3


def test_shell_completion_answers(process: Any) -> None:
    env = {"_KGRUN_COMPLETE": "complete_bash", "COMP_WORDS": "kgrun pla", "COMP_CWORD": "1"}
    result = process(env=env)
    assert (result.code, result.out.split(), result.err) == (0, ["plan-memory"], "")
    script = process("--show-completion", "bash", env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert script.code == 0
    assert "complete -o default -F _kgrun_completion kgrun" in script.out


@pytest.mark.parametrize("words", [["-h"], ["execute", "-h"], ["plan-memory", "--help"]])
def test_both_names_of_help_show_it(kgrun: Any, words: list[str]) -> None:
    result = kgrun(*words)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Usage: kgrun")
    assert "-h, --help" in result.out


def test_summaries_of_commands_are_whole(kgrun: Any) -> None:
    _, _, commands = kgrun("--help").out.partition("Commands:")
    assert "execute" in commands
    assert "..." not in commands


def test_a_wrong_choice_is_told_without_the_parsers_own_words(kgrun: Any) -> None:
    result = kgrun("schema", "foo")
    assert result.code == 2
    assert "'foo' is not one of 'graph', 'report'" in result.err
    assert "Value error" not in result.err


def test_cycles_are_looked_for_again_once_a_run_begins(process: Any) -> None:
    code = (
        "import atexit, gc, sys; from kgrun.cli import entry;"
        "atexit.register(lambda: print(gc.get_threshold()[0], gc.get_freeze_count() > 50_000, file=sys.stderr));"
        "entry.process()"
    )
    done = process("execute", "examples/encoder_ops.yaml", "--device", "cpu", "-q", code=code)
    assert (done.code, done.err.splitlines()[-1]) == (0, "200000 True")


@pytest.mark.parametrize("at", ["atexit", "callback"])
def test_ctrl_c_on_the_way_out_and_in_native_callbacks_shows_no_traceback(at: str) -> None:
    lost = (
        "import time\n"
        "class Lost:\n"
        "    def __del__(self): raise KeyboardInterrupt\n"
        "def run(words): Lost(); time.sleep(9); return 0\n"
        "import kgrun.cli.boundary as boundary; boundary._run = run\n"
    )
    ending = (
        "import atexit, os, signal, time\n"
        "atexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(9)))\n"
    )
    code = (ending if at == "atexit" else lost) + "from kgrun.cli.entry import process; process()"
    words = [sys.executable, "-c", code, *(["--version"] if at == "atexit" else ["schema"])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    wanted = (-2, "") if at == "atexit" else (130, "error[KG130]: interrupted\n")
    assert (done.returncode, done.stderr) == wanted
