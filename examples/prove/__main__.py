"""`python -m examples.prove`: right programs against all hazards, and each mistake until it shows (`make prove`)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer

import barnabas
from barnabas.proving.hazards import Thoroughness
from barnabas.proving.reports import line, summary
from barnabas.proving.trials import Proof
from examples.prove import chain, confluent, flights


def seed(kafka: barnabas.Broker | barnabas.Cluster) -> None:
    """The topic for bills, and twelve orders."""
    kafka.create_topics({"bills": 1})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(12):
        producer.produce(confluent.ORDERS, key=f"{number}", value=f"order {number}")
    producer.flush()


class Example(NamedTuple):
    """A program, which is right unless it is given one of its mistakes."""

    command: Sequence[str]
    mistakes: Mapping[str, str]
    outputs: Sequence[str] = ("bills",)
    inputs: Sequence[str] = (confluent.ORDERS,)
    seed: Callable[[Any], object] = seed
    idle_s: float = 8.0
    timeout_s: float = 60.0


def _python(name: str) -> Sequence[str]:
    return [sys.executable, "-m", f"examples.prove.{name}"]


EXAMPLES = {
    "confluent": Example(_python("confluent"), confluent.MISTAKES),
    "aiokafka": Example(
        _python("with_aiokafka"),
        {
            "retries-timeout": "a commit that takes too long is cancelled, and its records go into a new transaction"
        },
    ),
    "java": Example(
        ["java", "-XX:TieredStopAtLevel=1", str(Path(__file__).with_name("Billing.java"))],
        {"auto-commit": "the consumer commits its offsets by itself"},
    ),
    "pyspark": Example(
        _python("with_pyspark"),
        {
            "own-sink": "Spark's own sink for Kafka writes, which is at least once",
            "no-checkpoint": "the checkpoint is in a folder that each start makes anew",
        },
        idle_s=90,
        timeout_s=400,
    ),
    "chain": Example(_python("chain"), chain.MISTAKES, ["bills", "receipts"]),
    "flights": Example(
        _python("flights"), {}, flights.OUTPUTS, [flights.INPUT], flights.seed, idle_s=90, timeout_s=600
    ),
}


def main() -> int:
    """0 if the right programs hold and each mistake changes an outcome."""
    options = _options()
    is_as_said = True
    for name in options.name or EXAMPLES:
        example = EXAMPLES[name]
        if name == "java" and not os.environ.get("CLASSPATH"):
            print("--- java: left out, since CLASSPATH doesn't say where kafka-clients is", flush=True)
            continue
        for mistake in ("", *example.mistakes):
            print(f"--- {name}: {example.mistakes.get(mistake, 'right')}", flush=True)
            proof = proof_of(
                example,
                mistake,
                brokers=options.brokers,
                how=Thoroughness.QUICK if mistake or options.quick else Thoroughness.NORMAL,
                told=lambda trial: print(line(trial), flush=True),
            )
            print(summary(proof), flush=True)
            # A run that couldn't be judged shows no mistake.
            is_found = any(not each.difference.is_none for each in proof.trials)
            is_as_said = is_as_said and (is_found if mistake else proof.holds)
    return 0 if is_as_said else 1


def proof_of(example: Example, mistake: str = "", **how: Any) -> Proof:
    """What becomes of it in all hazards, or in those that `how` says."""
    return barnabas.prove(
        [*example.command, *([mistake] if mistake else [])],
        inputs=example.inputs,
        outputs=example.outputs,
        seed=example.seed,
        idle_s=example.idle_s,
        timeout_s=example.timeout_s,
        **how,
    )


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
