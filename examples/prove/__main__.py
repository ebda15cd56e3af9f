"""`python -m examples.prove`: right programs against all hazards, and each mistake until it shows (`make prove`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Producer

import barnabas
from barnabas.proving.hazards import Thoroughness
from barnabas.proving.reports import line, summary
from examples.prove import chain, confluent


class Example(NamedTuple):
    """A program, which is right unless it is given one of its mistakes."""

    command: Sequence[str]
    outputs: Sequence[str]
    mistakes: Mapping[str, str]


EXAMPLES = {
    "confluent": Example([sys.executable, "-m", "examples.prove.confluent"], ["bills"], confluent.MISTAKES),
    "chain": Example([sys.executable, "-m", "examples.prove.chain"], ["bills", "receipts"], chain.MISTAKES),
}


def seed(kafka: barnabas.Broker | barnabas.Cluster) -> None:
    """Twelve orders."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(12):
        producer.produce(confluent.ORDERS, key=f"{number}", value=f"order {number}")
    producer.flush()


def main() -> int:
    """0 where the right programs hold and no mistake does."""
    options = _options()
    is_as_said = True
    for name in options.name or EXAMPLES:
        example = EXAMPLES[name]
        for mistake in ("", *example.mistakes):
            print(f"--- {name}: {example.mistakes.get(mistake, 'right')}", flush=True)
            proof = barnabas.prove(
                [*example.command, *([mistake] if mistake else [])],
                inputs=[confluent.ORDERS],
                outputs=example.outputs,
                seed=seed,
                brokers=options.brokers,
                how=Thoroughness.QUICK if mistake or options.quick else Thoroughness.NORMAL,
                told=lambda trial: print(line(trial), flush=True),
            )
            print(summary(proof), flush=True)
            is_as_said = is_as_said and proof.holds is (not mistake)
    return 0 if is_as_said else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make prove ARGS=...", description=__doc__)
    parser.add_argument("name", nargs="*", choices=[[], *EXAMPLES], help="only these (default: all)")
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="on a cluster of N brokers")
    parser.add_argument(
        "--quick", action="store_true", help="the right programs, too, only with quick hazards"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
