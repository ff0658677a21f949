"""The command line: thin verbs over the rooms, none of which is entered before a verb needs it."""

from __future__ import annotations

import os
import sys
import warnings
from typing import NoReturn

from ibidem.errors import IbidemError


def main() -> None:
    """Run `ibidem`: exit code 0 when all is well, 1 for what went wrong, 2 for what cannot be meant.

    Whatever a user can put right is one line on stderr; a traceback is a bug. An interrupt gives 130.
    """
    warnings.showwarning = _show_warning
    # Threads that wait by spinning are a little faster alone, but took twice as long beside another busy program.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        sys.exit(_run(sys.argv[1:] or ["--help"]))
    except IbidemError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail("interrupted; a memory keeps what was committed, and the same command goes on from there", 130)
    except BrokenPipeError:
        # The reader of our output went away: nothing is wrong on our side, and nobody is left to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        what = error.strerror or str(error)
        _fail(f"{where}{what}; check the path, its permissions and the room on the disk, then run again", 1)


def _run(arguments: list[str]) -> int:
    """Run a verb; its exit code."""
    import typer

    from ibidem.cli.app import app

    command = typer.main.get_command(app)
    try:
        with command.make_context("ibidem", arguments) as context:
            command.invoke(context)
        sys.stdout.flush()  # so that a reader who went away is noticed here
    except typer.Exit as done:
        return done.exit_code
    except Exception as error:
        # Click's errors of the arguments, known by their method: typer may bring a click of its own.
        if not hasattr(error, "format_message"):
            raise
        verb = getattr(getattr(error, "ctx", None), "command_path", "ibidem")
        message = error.format_message().rstrip(".")
        _fail(f"{message}; `{verb} --help` lists what can be given", 2)
    return 0


def _fail(message: str, code: int) -> NoReturn:
    print(f"error: {' '.join(message.splitlines())}", file=sys.stderr)
    sys.exit(code)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {' '.join(str(message).splitlines())}", file=sys.stderr)
