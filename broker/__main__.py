"""`python -m broker`: runs one broker until it is told to stop. `python -m broker format` makes its folders."""

from __future__ import annotations

import gc
import logging
import os
import sys


def main() -> int:
    """The exit status: 0 after a clean stop, 1 where the broker couldn't start or failed, 2 for wrong use."""
    # What a start makes, modules first of all, is there to stay: looking it through, again and again, finds nothing
    # and takes a tenth of the start. `run` turns it on again.
    gc.disable()
    from broker.config.definitions import UsageError
    from broker.process.command_line import parse_command_line

    try:
        if sys.argv[1:2] == ["format"]:
            from broker.process.format_command import format_command

            return format_command(sys.argv[2:])
        options = parse_command_line(sys.argv[1:], os.environ)
    except UsageError as error:
        from broker.process.printable import printable

        print(f"barnabas: {printable(str(error))}", file=sys.stderr)
        return error.exit_status
    from broker.process.run import run

    status = run(options)
    from broker.environment.threads import is_under_way

    if is_under_way():
        # All that counts is closed. What is still computed counts no more, and while it ends of itself, or unpacks
        # while the interpreter ends, the process should be gone.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
