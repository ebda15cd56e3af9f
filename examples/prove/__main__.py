"""`python -m examples.prove`: the right program against all hazards, and each mistake until it shows (`make prove`)."""

from __future__ import annotations

import sys

from confluent_kafka import Producer

import barnabas
from barnabas.proving.hazards import Thoroughness
from barnabas.proving.reports import line, summary
from examples.prove.confluent import MISTAKES, ORDERS

PROGRAM = [sys.executable, "-m", "examples.prove.confluent"]


def seed(broker: barnabas.Broker) -> None:
    """Twelve orders."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(12):
        producer.produce(ORDERS, key=f"{number}", value=f"order {number}")
    producer.flush()


def main() -> int:
    """0 where the right program holds and no mistake does."""
    is_as_said = True
    for mistake in ("", *MISTAKES):
        print(f"--- {MISTAKES.get(mistake, 'right')}", flush=True)
        proof = barnabas.prove(
            [*PROGRAM, *([mistake] if mistake else [])],
            inputs=["orders"],
            outputs=["bills"],
            seed=seed,
            how=Thoroughness.QUICK if mistake else Thoroughness.NORMAL,
            told=lambda trial: print(line(trial), flush=True),
        )
        print(summary(proof), flush=True)
        is_as_said = is_as_said and proof.holds is (not mistake)
    return 0 if is_as_said else 1


if __name__ == "__main__":
    sys.exit(main())
