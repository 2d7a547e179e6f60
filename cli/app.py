"""The typer application: its commands, each loaded when it is asked for, and its usage errors as kgrun's own."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
import typer.main

from kgrun.graphs.errors import KgrunError, UsageError, did_you_mean
from kgrun.graphs.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

# Command name -> module in kgrun.cli.commands that has a function `command`; in the order of the help page.
COMMANDS = {
    "execute": "execute",
    "plan-memory": "plan_memory",
    "validate": "validate",
    "import": "import_",
    "explain": "explain",
    "run-op": "run_op",
    "dump-check": "dump_check",
    "diff": "diff",
    "schema": "schema",
    "doctor": "doctor",
}
PROGRAM = "kgrun"
HELP = {"help_option_names": ["-h", "--help"]}

# Click is a dependency of older typers and part of newer ones; its exception classes are reached through typer.
ClickException: Any = typer.BadParameter.__mro__[2]


class LazyCommands(typer.core.TyperGroup):
    """The group of all commands; a command's module is imported when the command is used or listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, built on first use."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = build_command(cmd_name)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer's, with kgrun's own words for a name that does not exist."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise UsageError(
                f"no command {args[0]!r}",
                code="KG250",
                help=did_you_mean(args[0], COMMANDS) or f"commands: {', '.join(COMMANDS)}",
            )
        return super().resolve_command(ctx, args)


def build_command(name: str) -> Any:
    """The click command of `name`, from its module's function."""
    module = importlib.import_module(f"kgrun.cli.commands.{COMMANDS[name]}")
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    summary = (module.command.__doc__ or "").strip().partition("\n")[0]
    single.command(name, short_help=summary, context_settings=HELP)(module.command)
    return typer.main.get_command(single)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


def _describe(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run a graph of GPU kernels from one file: check it, plan its memory, execute it, report what it cost."""


@cache
def application() -> Any:
    """The click group of the whole program, one for the process: to build options takes longer than to read them."""
    app = typer.Typer(name=PROGRAM, cls=LazyCommands, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback(context_settings=HELP)(_describe)
    return typer.main.get_command(app)


def invoke(words: Sequence[str]) -> int:
    """Parse and run a command line; returns the exit code, raises KgrunError and whatever the command raises."""
    import os

    group = application()
    if f"_{PROGRAM.upper()}_COMPLETE" in os.environ:  # a shell asks for completions: typer's own protocol
        group.main(args=list(words), prog_name=PROGRAM)
    if not words:
        with group.make_context(PROGRAM, ["--help"], resilient_parsing=True) as context:
            typer.echo(group.get_help(context))
        return 2
    try:
        with group.make_context(PROGRAM, list(words)) as context:
            group.invoke(context)
    except typer.Exit as done:
        return int(done.exit_code)
    except ClickException as error:
        raise as_usage_error(error) from None
    return 0


def _plain(message: str) -> str:
    """The parser's words without what it says about itself."""
    return message.strip().rstrip(".").replace(": Value error, ", ": ")


def as_usage_error(error: Any) -> KgrunError:
    """A usage error of typer's parser in kgrun's shape."""
    context, param = getattr(error, "ctx", None), getattr(error, "param", None)
    name = context.command_path if context is not None else PROGRAM
    close = getattr(error, "possibilities", None)
    option = getattr(error, "option_name", None)
    message = f"no option {option}" if close is not None and option else _plain(error.format_message())
    source = context.get_parameter_source(param.name) if context is not None and param is not None else None
    if param is not None and source is not None and source.name == "ENVIRONMENT":
        message += f" (from the environment: {param.envvar})"
    help = f"did you mean {' or '.join(close)}?" if close else f"`{name} --help` lists what it takes"
    return UsageError(message, code="KG250", help=help)
