"""`python -m broker` runs a broker until it is told to stop. `python -m broker format` formats its
folders."""

from __future__ import annotations

import gc
import logging
import os
import sys


def main() -> int:
    """Return the exit status: 0 after a clean stop, 1 if the broker couldn't start or failed, 2 for wrong
    usage."""
    # The objects of a start, modules above all, live until the end. The collector would look through them
    # again and again for nothing, which takes a tenth of the start. `run` turns it on again.
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
        # Everything important is closed. Computations in threads don't matter any more, and the process
        # shouldn't wait for them to end.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
