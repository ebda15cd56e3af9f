"""`barnabas bench` and `barnabas completion`."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any, NoReturn

import pytest

from cli import bench
from cli.main import Parser
from tests.cli.conftest import ON_OURS_ALONE, Kafka, Run, run_cli


def test_every_measure_has_figures_and_nothing_is_left_behind(cli: Run, kafka: Kafka) -> None:
    told = cli("bench", "--seconds", "0.3", "--json")
    assert told.status == 0, told.err
    figures = {(figure["what"], figure["unit"]): figure["value"] for figure in told.json()["figures"]}
    assert {what for what, _ in figures} == {
        "produce",
        "consume",
        "transactions",
        "commit, median",
        "commit, 99th percentile",
        "end to end, median",
        "end to end, 99th percentile",
    }
    assert all(value > 0 for value in figures.values())
    assert told.json()["brokers"] == kafka.brokers
    assert "barnabas-bench" not in cli("topics").out


def test_a_shell_takes_the_completion() -> None:
    script = run_cli("completion", "bash")
    assert script.status == 0
    subprocess.run(["bash", "-n"], input=script.out, text=True, check=True)
    assert "consume" in script.out
    assert run_cli("completion", "fish").status == 2


@ON_OURS_ALONE
def test_unsent_records_are_dropped_before_the_topic_is_deleted(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    made: list[Any] = []

    def interrupted(of: Any) -> NoReturn:
        made.append(of.producer(**{"linger.ms": 60_000}))
        made[0].produce(of.topic, b"a")
        assert len(made[0]) == 1
        raise KeyboardInterrupt

    def delete(settings: Mapping[str, str], topic: str) -> None:
        made[0].poll(0)
        left.append(len(made[0]))
        _delete(settings, topic)

    _delete = bench._delete
    monkeypatch.setitem(bench.MEASURES, "produce", interrupted)
    monkeypatch.setattr(bench, "_delete", delete)
    parser = Parser()
    bench.add_arguments(parser)
    with pytest.raises(KeyboardInterrupt):
        bench.run(parser.parse_args(["produce", "--bootstrap", kafka.bootstrap]))
    assert left == [0]
