"""The job in docs/spark.md, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from barnabas.spark import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text("utf-8")


def test_the_job_that_the_documents_tell_to_paste_runs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    # The JVM is where the tests are, whatever folder Python is in.
    assert '"checkpoints/invoices"' in job
    job = job.replace('"checkpoints/invoices"', repr(str(tmp_path / "checkpoints")))
    # In the session that the tests share: it is the same but for its size.
    monkeypatch.setattr(connector, "session", lambda name, master: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    exec(compile(job, "docs/spark.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "1000 invoices of 1000 orders" in printed
    assert sum(map(int, re.findall(r"^orders-[012]: read up to (\d+)$", printed, re.MULTILINE))) == 1000


def test_the_connectors_that_the_documents_name_are_those_that_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = {
        line: package
        for lines, package in re.findall(
            r"^\| ([\d., ]+) \| `(org\.apache\.spark:\S+)` \|$", TEXT, re.MULTILINE
        )
        for line in lines.split(", ")
    }
    assert set(named) == set(connector.TRIED)
    for line, package in named.items():
        monkeypatch.setattr("pyspark.__version__", f"{line}.0")
        assert connector.package() == package
