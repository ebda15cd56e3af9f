"""Orders in, bills out, and a receipt of each bill: `python -m examples.prove.chain [MISTAKE]`.

The second step reads what the first one has written.
"""

from __future__ import annotations

import os
import sys

from examples.prove.confluent import BILLING, BILLS, Step, Worker

RECEIPTS = "receipts"
POSTING = Step(BILLS, RECEIPTS, "posting", "receipt of")

MISTAKES = {"reads-uncommitted": "the second step reads bills of aborted transactions, too"}


def main(bootstrap: str, mistake: str = "") -> None:
    """One step after the other."""
    Worker(bootstrap, step=BILLING).run()
    isolation = "read_uncommitted" if mistake == "reads-uncommitted" else "read_committed"
    Worker(bootstrap, step=POSTING, isolation=isolation).run()


if __name__ == "__main__":
    main(os.environ["BARNABAS_BOOTSTRAP"], *sys.argv[1:])
