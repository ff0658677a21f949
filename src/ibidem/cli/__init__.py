"""The command line. No other package is imported before a command needs it."""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import NoReturn

from ibidem.cli.console import note
from ibidem.errors import IbidemError


def main() -> None:
    """Run `ibidem` with the arguments of the process, and exit.

    The exit code is 0 for success, 1 for a failure, 2 for invalid arguments or settings, and 130 for an interrupt.
    An error that a user can correct is one line on stderr; a traceback is a bug.
    """
    warnings.showwarning = _show_warning
    # Threads that spin while they wait slow down every other busy program on the machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        sys.exit(_run(sys.argv[1:] or ["--help"]))
    except IbidemError as error:
        _fail(str(error), error.exit_code)
    except (MemoryError, RuntimeError) as error:
        # torch raises a RuntimeError where its allocator fails, and its subclass OutOfMemoryError on a device.
        if not isinstance(error, MemoryError) and not re.search("allocate memory|out of memory", str(error)):
            raise
        _fail("there is not enough memory: give a smaller --batch-size or --beam, or less text at once", 1)
    except KeyboardInterrupt:
        _fail("interrupted; everything that was committed is kept: run the same command to resume", 130)
    except BrokenPipeError:
        # The reader of our output has closed the pipe, which is no failure; avoid a second error while flushing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        what = error.strerror or str(error)
        _fail(f"{where}{what}; check the path, its permissions and the free disk space, then run again", 1)


def _run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    import typer

    from ibidem.cli.app import app, repeat_file_options

    if "_IBIDEM_COMPLETE" in os.environ:  # a shell requests completions
        app(prog_name="ibidem")
    command = typer.main.get_command(app)
    try:
        with command.make_context("ibidem", repeat_file_options(arguments)) as context:
            command.invoke(context)
        sys.stdout.flush()  # raises BrokenPipeError here if the reader has closed the pipe
    except typer.Exit as done:
        return done.exit_code
    except Exception as error:
        # Errors of click are recognised by their method, since typer may bring its own copy of click.
        if not hasattr(error, "format_message"):
            raise
        name = getattr(getattr(error, "ctx", None), "command_path", "ibidem")
        message = error.format_message().rstrip(".")
        _fail(f"{message}; `{name} --help` lists the options", 2)
    return 0


def _fail(message: str, code: int) -> NoReturn:
    note(f"error: {' '.join(message.splitlines())}")
    sys.exit(code)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    note(f"warning: {' '.join(str(message).splitlines())}")
