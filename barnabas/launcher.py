"""The command `barnabas`: finds the floors, and runs the module `broker` or `cli` in this process.

The floors have names as common as `storage`, so they live outside of `site-packages`: in a wheel under
`barnabas/server/`, in a checkout at its root, beside this package. Only a process that becomes one of them puts that
folder first on its path, and it never imports the front again. `barnabas cluster` and `barnabas prove` belong to the
front: they start other processes, each of which is one broker.
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
    """Run the broker until it ends, a command that starts several brokers, or another command. Exits by SystemExit."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # While there is nothing to stop cleanly, Ctrl-C ends the process as SIGTERM does: without a Python traceback.
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
    """Return the program that the arguments ask for: the broker has only options, the command line begins with a
    word."""
    first = arguments[0] if arguments else ""
    if first in ("-h", "--help") or (first and not first.startswith("-") and first != "format"):
        return "cli"
    return "broker"


if __name__ == "__main__":
    main()
