"""The command line: thin verbs over the rooms, none of which is entered before a verb needs it."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `ibidem`: exit code 0 when all is well, 1 for what went wrong, 2 for what cannot be meant."""
    from ibidem.cli.app import app
    from ibidem.errors import IbidemError

    try:
        app(prog_name="ibidem")
    except IbidemError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted; what was committed is kept, and the same command goes on from there", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away: nothing is wrong on our side.
        sys.stderr.close()
        sys.exit(0)
