"""Show what is in a file or a folder of Kafka or barnabas. Nothing is changed, and no broker is asked.

barnabas inspect data                                            its partitions, with their offsets
barnabas inspect data/orders-0                                   its files, open transactions, and errors
barnabas inspect data/orders-0/00000000000000000000.log          batches, and which transactions each begins or ends
barnabas inspect --console data                                  the same as a page in the browser
barnabas inspect --records data/__consumer_offsets-0/*.log       records; those of internal topics are decoded
barnabas inspect data/orders-0/00000000000000000000.timeindex    entries, compared with the batches

Segments, indexes, producers' snapshots, checkpoints, meta.properties, quorum-state, the metadata log and its snapshots.
Errors come after !!. The exit status is 1 if there are any, and
2 if a path isn't Kafka's.
"""

from __future__ import annotations

import argparse
import itertools

from cli.console.command import add_listening
from cli.errors import FAILED, USAGE, CommandUsageError
from cli.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the paths, and options for how much of a segment to show."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files, folders of partitions, data folders")
    parser.add_argument("--records", action="store_true", help="also show the records of batches")
    parser.add_argument(
        "--offset", type=int, default=0, metavar="N", help="show a segment from this offset on (default: all)"
    )
    parser.add_argument(
        "--console", action="store_true", help="show a data folder as a page in the browser, until Ctrl-C"
    )
    add_listening(parser)
    parser.add_argument("--json", action="store_true", help="JSON lines for programs: one object per line")


def run(options: argparse.Namespace) -> int:
    """See `cli.commands.Command`."""
    if options.console:
        from cli.console.command import show_folder

        return show_folder(options)
    from cli.inspecting.batches import Asked
    from cli.inspecting.entry import Entry, write
    from cli.inspecting.kinds import entries_of

    asked = Asked(options.records, options.offset)
    wrong = refused = 0
    for path in options.paths:
        try:
            entries = entries_of(path, asked)
        except CommandUsageError as refusal:
            if len(options.paths) == 1:
                raise
            say(f"barnabas: {refusal}")  # for example for a `*` that matches more than Kafka's files
            refused += 1
            continue
        if len(options.paths) > 1 or options.json:
            entries = itertools.chain([Entry("path", {"path": path}, f"{path}:")], entries)
        wrong += write(entries, as_json=options.json)
    if refused:
        return USAGE
    return FAILED if wrong else 0
