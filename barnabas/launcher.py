"""The command `barnabas`: finds the floors and runs the module `broker`, or `cli`, in this process.

The floors have names as common as `storage`, so they live outside of `site-packages`: in a wheel
under `barnabas/server/`, in a checkout at its root, beside this package. Only a process that is
going to be one of them puts that folder on its path, first, and it never imports the front again.
`barnabas cluster` and `barnabas prove` are the front's: they start others, each of which is one broker.
"""

import os
import signal
import sys


def server_folder() -> str:
    """The folder that holds `cli/`, `broker/`, `protocol/`, `storage/` and `coordinator/`."""
    package = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.join(package, "server")
    return installed if os.path.isdir(installed) else os.path.dirname(package)


def main() -> None:
    """Be the broker until it ends, what starts several, or a command; the exit status leaves as SystemExit."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until there is somebody to stop cleanly, Ctrl-C ends this as SIGTERM does: without a traceback of Python's.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] == ["cluster"]:
        from barnabas.cluster_command import main as cluster

        sys.exit(cluster(sys.argv[2:]))
    if sys.argv[1:2] == ["prove"]:
        from barnabas.prove_command import main as prove

        sys.exit(prove(sys.argv[2:]))
    sys.path.insert(0, server_folder())
    import runpy

    runpy.run_module(_program(sys.argv[1:]), run_name="__main__", alter_sys=True)


def _program(arguments: list[str]) -> str:
    """The broker, which has options alone, or the command line for people, whose commands are words."""
    first = arguments[0] if arguments else ""
    if first in ("-h", "--help") or (first and not first.startswith("-") and first != "format"):
        return "cli"
    return "broker"


if __name__ == "__main__":
    main()
