"""The `perfmodel` command: one module per command, errors as one line."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from typing import Annotated, Any

import typer

from perfmodel import __version__
from perfmodel.cli.lazy import HELP, LazyGroup
from perfmodel.cli.output import NARROWEST
from perfmodel.cli.stream import WriteError, answers, complain, discard_output
from perfmodel.errors import PerfmodelError

app = typer.Typer(
    name="perfmodel",
    cls=LazyGroup,
    help="How long LLM prefill and decode take on an accelerator, what limits them, what fits.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=HELP,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"perfmodel {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            callback=_print_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """Take the options that come before a command."""


def _fail(message: str, status: int = 2) -> int:
    complain(message)
    return status


def _usage(error: Any) -> int:
    """The exit status of a fault of the command line, said on one line."""
    message = error.format_message()
    if not message:  # no arguments: the help has been printed
        return int(error.exit_code)
    message = message.replace("Value error, ", "").rstrip(".")
    return _fail(f"{message} (see perfmodel --help)", int(error.exit_code))


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit status.

    0: done; 1: a check failed; 2: the input is wrong or can't be met, or the answer can't be
    written. What a user can mend is one line on stderr; a bug keeps its traceback.
    """
    command = typer.main.get_command(app)
    try:
        with answers():
            status: Any = command.main(args=arguments, prog_name="perfmodel", standalone_mode=False)
    except PerfmodelError as error:
        return _fail(str(error))
    except typer.Abort:
        return _fail("interrupted", 130)
    except WriteError as error:
        discard_output()
        # The reader of our output (head, less) may have left: nothing more to say.
        return 0 if error.closed else _fail(f"can't write the answer: {error}")
    except Exception as error:
        # Usage errors of typer's (vendored) click know how to format themselves.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            return _usage(error)
        raise
    return status if isinstance(status, int) else 0


def _leave(number: int, _frame: Any) -> None:
    """End as an exception does, so that every block still tidies up after itself."""
    signal.signal(number, signal.SIG_IGN)  # a second one would cut the tidying short
    raise SystemExit(128 + number)


def _end_orderly() -> None:
    """Let requests to end leave no half-written file, as they would by the system's default."""
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no second
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores it
            signal.signal(number, _leave)


def main() -> None:
    """Entry point of the console script."""
    _end_orderly()
    columns = shutil.get_terminal_size().columns
    if columns < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)  # the help's tables too; the terminal wraps them
    sys.exit(run())
