"""`barnabas bench` and `barnabas completion`."""

from __future__ import annotations

import subprocess

from tests.cli.conftest import Kafka, Run, run_cli


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
