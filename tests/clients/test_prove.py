"""`barnabas prove` finds the mistake in each program of examples/prove, and passes the right one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from barnabas.proving.hazards import Hazard, Strike, Thoroughness, hazards_of
from barnabas.proving.outcomes import Output
from barnabas.proving.trials import CannotProveError, Proof, prove
from tests.support.apache_kafka import tool
from tests.support.requirements import need_apache_kafka, need_program

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka")

from examples.prove.__main__ import EXAMPLES
from examples.prove.__main__ import proof_of as proof_of_example
from examples.prove.confluent import Worker

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "examples.prove.confluent"]
ORDERS = 12

FOUND_BY = {
    "retries-commit": (Hazard("EndTxn", 2, Strike.ANSWER_AWAITED), "after the commit had succeeded"),
    "offsets-beside": (Hazard("EndTxn", 2, Strike.PROGRAM_KILLED_AFTER), "outside of the transaction"),
    "random-id": (Hazard("TxnOffsetCommit", 2, Strike.TAKEN_OVER), "changes with each start"),
    "swallows-abort": (Hazard("TxnOffsetCommit", 2, Strike.GROUP_MOVED_ON), "went on without reading"),
}
"""By which hazard each mistake shows, and what is said of it."""


def proof_of(
    mistake: str,
    hazards: list[Hazard],
    *,
    name: str = "confluent",
    brokers: int = 1,
    environment: Mapping[str, str] | None = None,
) -> Proof:
    return proof_of_example(
        EXAMPLES[name],
        mistake,
        brokers=brokers,
        environment={"PYTHONPATH": str(ROOT), **(environment or {})},
        hazards=hazards,
    )


@pytest.mark.parametrize("mistake", FOUND_BY)
def test_each_mistake_is_found_and_named(mistake: str) -> None:
    hazard, why = FOUND_BY[mistake]
    proof = proof_of(mistake, [hazard])
    [trial] = proof.trials
    assert trial.is_reached
    assert not proof.holds
    wrong, right = trial.difference.doubled, trial.difference.lost
    if mistake == "swallows-abort":
        wrong, right = right, wrong
    assert sum(wrong.values()) in (4, 8)  # the bills of whole transactions
    assert not right
    assert any(why in each for each in trial.reasons), trial.reasons


def test_a_cancelled_commit_of_aiokafka_is_found_and_named() -> None:
    pytest.importorskip("aiokafka", reason="needs aiokafka")
    hazard = Hazard("EndTxn", 2, Strike.ANSWER_AWAITED)
    [trial] = proof_of("retries-timeout", [hazard], name="aiokafka").failures
    assert sum(trial.difference.doubled.values()) == 4
    assert [each for each in trial.reasons if "after the commit had succeeded" not in each] == []
    assert proof_of("", [hazard], name="aiokafka").holds


def test_automatic_commits_of_a_java_consumer_are_found_and_named() -> None:
    need_program("javac")
    need_apache_kafka()
    environment = {"CLASSPATH": tool("classpath").strip()}
    hazard = Hazard("EndTxn", 2, Strike.PROGRAM_KILLED_AFTER)
    [trial] = proof_of("auto-commit", [hazard], name="java", environment=environment).failures
    assert sum(trial.difference.doubled.values()) == 4
    assert ["outside of the transaction" in each for each in trial.reasons] == [True]
    assert proof_of("", [hazard], name="java", environment=environment).holds


COUNTS_STARTS = """
import pathlib, sys
from confluent_kafka import Producer
starts = pathlib.Path(sys.argv[2], "starts")
number = int(starts.read_text()) + 1 if starts.exists() else 1
starts.write_text(f"{number}")
producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("bills", f"start {number}")
producer.flush(10)
"""


def test_a_programs_folder_stays_over_its_starts_and_is_empty_for_each_run() -> None:
    hazard = Hazard("Produce", 1, Strike.PROGRAM_KILLED_AFTER)
    proof = prove(
        [sys.executable, "-c", COUNTS_STARTS, "{bootstrap}", "{folder}"],
        outputs=["bills"],
        hazards=[hazard, hazard],
    )
    assert proof.expected == {Output("bills", None, b"start 1"): 1}
    assert [each.difference.foreign for each in proof.trials] == [
        {Output("bills", None, b"start 2"): 1},
        {Output("bills", None, b"start 2"): 1},
    ]


def bills(bootstrap: str) -> None:
    Worker(bootstrap).run()


def bills_under_a_new_id(bootstrap: str) -> None:
    Worker(bootstrap, "random-id").run()


def test_a_function_is_killed_and_proved_like_a_command() -> None:
    hazard = Hazard("TxnOffsetCommit", 2, Strike.PROGRAM_KILLED_AFTER)
    given: dict[str, Any] = {"outputs": ["bills"], "seed": EXAMPLES["confluent"].seed, "hazards": [hazard]}
    [killed] = prove(bills, **given).trials
    assert killed.holds
    starts = {each["connection"] for each in killed.requests if each["api"] == "InitProducerId"}
    assert len(starts) == 2
    taken_over = Hazard("TxnOffsetCommit", 2, Strike.TAKEN_OVER)
    [trial] = prove(bills_under_a_new_id, **given | {"hazards": [taken_over]}).failures
    assert any("changes with each start" in each for each in trial.reasons), trial.reasons


def test_the_right_program_survives_the_hazards_that_find_the_mistakes() -> None:
    hazards = [
        *(hazard for hazard, _ in FOUND_BY.values()),
        Hazard("Produce", 1, Strike.BROKER_KILLED_AFTER),
        Hazard("AddPartitionsToTxn", 1, Strike.REQUEST_LOST),
    ]
    proof = proof_of("", hazards)
    assert [str(each.hazard) for each in proof.failures] == []
    assert len(proof.trials) == len(hazards)
    assert sum(proof.expected.values()) == ORDERS


def test_three_brokers_go_through_a_killed_and_a_moved_coordinator() -> None:
    hazards = [Hazard("EndTxn", 1, Strike.BROKER_KILLED_AFTER), Hazard("TxnOffsetCommit", 1, Strike.MOVED)]
    killed, moved = proof_of("", hazards, brokers=3).trials
    assert [killed.holds, moved.holds] == [True, True], [killed, moved]
    assert any("__consumer_offsets-" in each and "moved to broker" in each for each in moved.notes)
    assert len({each["node"] for each in killed.requests}) == 3


@pytest.mark.one_run_in(3)
def test_a_mistake_is_found_and_named_on_three_brokers() -> None:
    proof = proof_of("retries-commit", [Hazard("EndTxn", 1, Strike.ANSWER_AWAITED)], brokers=3)
    [trial] = proof.failures
    assert trial.difference.doubled
    assert [each for each in trial.reasons if "after the commit had succeeded" not in each] == []


def test_a_reader_of_uncommitted_records_is_found_and_named() -> None:
    hazard = Hazard("Produce", 1, Strike.PROGRAM_KILLED_AFTER)
    [trial] = proof_of("reads-uncommitted", [hazard], name="chain").failures
    assert {each.topic for each in trial.difference.doubled} == {"receipts"}
    assert trial.reasons == [
        "it reads bills with isolation level read_uncommitted, where 4 records are of transactions that were aborted"
    ]
    assert proof_of("", [hazard], name="chain").holds


def test_a_hazard_that_never_comes_about_proves_nothing() -> None:
    [trial] = proof_of("", [Hazard("EndTxn", 100, Strike.ANSWER_LOST)]).trials
    assert (trial.is_reached, trial.holds) == (False, False)
    assert trial.difference.is_none


def test_a_program_that_fails_without_a_hazard_proves_nothing() -> None:
    with pytest.raises(CannotProveError, match="ended with status 3"):
        prove([sys.executable, "-c", "print('no'); raise SystemExit(3)"], outputs=["bills"], hazards=[])


def test_the_command_reports_and_its_status_says_it(tmp_path: Path) -> None:
    (tmp_path / "orders.txt").write_text("".join(f"order {number}\n" for number in range(ORDERS)))
    command = [sys.executable, "-m", "barnabas", "prove", "--input", "orders=orders.txt", "--output", "bills"]
    command += ["--quick", "--most", "1", "--html", "report.html", "--junit", "report.xml", "--", *PROGRAM]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the outcome stayed equal in all 1 hazards" in done.stdout
    assert "InitProducerId #1: answer lost" in (tmp_path / "report.html").read_text()
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def requests(*apis: str) -> list[dict[str, Any]]:
    return [{"api": api} for api in apis]


def test_hazards_are_of_the_steps_that_the_program_goes_through() -> None:
    seen = requests("Fetch", "InitProducerId", "Produce", "EndTxn", "Produce", "EndTxn", "EndTxn")
    found = hazards_of(seen, Thoroughness.NORMAL, 500)
    assert {(each.api, each.nth) for each in found} == {("InitProducerId", 1), ("Produce", 2), ("EndTxn", 2)}
    only_with_offsets_or_brokers = 2
    strikes = len(Strike) - only_with_offsets_or_brokers
    assert len(found) == 3 * strikes
    thorough = hazards_of(seen, Thoroughness.THOROUGH, 500)
    assert len(thorough) == 6 * strikes
    assert len(hazards_of(seen, Thoroughness.QUICK, 500)) < len(found)
    assert len(hazards_of(seen, Thoroughness.THOROUGH, 7)) == 7


def test_each_hazard_is_reached_on_whichever_broker_the_requests_go_to() -> None:
    seen = requests("InitProducerId", *["Produce"] * 4, *["EndTxn"] * 3)
    found = hazards_of(seen, Thoroughness.NORMAL, 500, brokers=3)
    # Of four requests to three brokers, one broker gets two.
    assert {(each.api, each.nth) for each in found} == {("InitProducerId", 1), ("Produce", 2), ("EndTxn", 1)}
    assert Hazard("EndTxn", 1, Strike.MOVED) in found
    assert Hazard("EndTxn", 1, Strike.MOVED) not in hazards_of(seen, Thoroughness.NORMAL, 500)
