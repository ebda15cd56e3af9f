"""Show topics, records, groups and above all transactions on a page in the browser, updated live.

barnabas console                              the Kafka at localhost:9092, on http://127.0.0.1:8095
barnabas console --bootstrap kafka:9092       another one, such as Apache Kafka
barnabas console --listen 0.0.0.0:8095        also for other machines: it prints an address with a token
barnabas --console                            start a broker together with its console
barnabas inspect --console data               a folder, without a broker
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from cli.errors import CommandError, CommandUsageError
from cli.options import BOOTSTRAP, add_connection, client_settings
from cli.pasting import which_kafka

NEEDS = "the console needs starlette and uvicorn: pip install 'barnabas[console]'"


def add_listening(parser: argparse.ArgumentParser) -> None:
    """Add the options for the page's address."""
    group = parser.add_argument_group("the page")
    group.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="the page's address (default: 127.0.0.1:8095); other machines need a token",
    )
    group.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="a name of this machine in a browser's address; may be repeated",
    )
    group.add_argument("--parent-fd", type=int, metavar="N", help=argparse.SUPPRESS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.commands.Command`."""
    add_listening(parser)
    add_connection(parser)
    parser.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="a broker's barnabas.metrics.listener, which tells what clients push; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    """See `cli.commands.Command`."""
    settings = client_settings(options)
    serving = _serving()
    from cli.console.live import LiveKafka
    from cli.console.sections import Sections
    from cli.console.telemetry import ClientTelemetry
    from cli.console.watching import Watch

    sections = Sections()
    kafka = LiveKafka(settings, which_kafka(options), ClientTelemetry(options.metrics))
    watch = Watch(settings, sections, kafka.at_a_glance, kafka.learn)
    about = {"live": True, "where": settings[BOOTSTRAP]}
    listen = options.listen or serving.DEFAULT_LISTEN
    watch.start()
    try:
        serving.serve(kafka, sections, about, listen, tuple(options.name), options.parent_fd)
    finally:
        watch.end()
        kafka.close()
    return 0


def show_folder(options: argparse.Namespace) -> int:
    """Run `barnabas inspect --console DIR`."""
    if len(options.paths) != 1:
        raise CommandUsageError("--console shows one data folder")
    serving = _serving()
    from cli.console.folder import FolderKafka
    from cli.console.sections import Sections

    sections = Sections()
    folder = FolderKafka(options.paths[0], sections)
    about = {"live": False, "where": folder.path}
    listen = options.listen or serving.DEFAULT_LISTEN
    serving.serve(folder, sections, about, listen, tuple(options.name), options.parent_fd)
    return 0


def _serving() -> Any:
    """Import the module that needs the extra `console`."""
    try:
        return importlib.import_module("cli.console.serving")
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise CommandError(NEEDS) from None
