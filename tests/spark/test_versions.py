"""The sink on the oldest PySpark that it is meant for, in every other run or so, and what an older one is told. `make
spark-versions` tries it on all."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import importlib
import re
import sys
import tomllib

import pyspark

from barnabas.spark import ExactlyOnceKafkaSink, connector
from barnabas.spark.errors import UnsupportedSparkError
from tests.spark.versions import environments, oldest
from tests.spark.versions.jobs import KINDS
from tests.spark.versions.trial import GOOD, attempt

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
@pytest.mark.one_run_in(2)
def test_the_oldest_pyspark_writes_keyed_unkeyed_and_killed_exactly_once(
    needs_spark: None, barnabas_bootstrap: str, tmp_path: Path
) -> None:
    if not oldest.is_fetched():
        pytest.skip(f"needs PySpark {oldest.OLDEST}, which `make reference` fetches")
    trial = attempt(sys.executable, barnabas_bootstrap, tmp_path, "oldest", oldest.environment())
    assert trial.outcomes == dict.fromkeys(KINDS, GOOD)
    assert trial.versions[0] == oldest.OLDEST


def test_the_extra_accepts_the_tested_versions() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (pyspark,) = [line for line in extras["spark"] if line.startswith("pyspark")]
    lowest, highest = oldest.OLDEST.split(".")[:2], list(connector.TRIED)[-1].split(".")
    assert pyspark == f"pyspark[sql]>={'.'.join(lowest)},<{highest[0]}.{int(highest[1]) + 1}"


def test_the_extra_brings_the_protobuf_that_stateful_processors_speak_by() -> None:
    """What was made by one release of protobuf runs on that and later ones, up to the end of the next line."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (protobuf,) = [line for line in extras["spark"] if line.startswith("protobuf")]
    found = re.fullmatch(r"protobuf>=(\d+)\.(\d+)\.(\d+),<(\d+)", protobuf)
    assert found is not None
    *lowest, beyond = map(int, found.groups())
    assert beyond == lowest[0] + 1
    (made,) = (Path(pyspark.__file__).parent / "sql" / "streaming").rglob("StateMessage_pb2.py")
    told = re.search(r"Protobuf Python Version: (\d+)\.(\d+)\.(\d+)", made.read_text())
    assert told is not None
    assert [*map(int, told.groups())] <= lowest
    module = ".".join(made.with_suffix("").parts[made.parts.index("pyspark") :])
    assert importlib.import_module(module).StateRequest is not None


@pytest.mark.parametrize("version", ["3.5.9", "3.4.0"])
def test_an_older_pyspark_is_refused_ahead_of_any_try(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(
        UnsupportedSparkError, match=rf"needs PySpark 4.0 or later, and this is {version}: pip"
    ):
        ExactlyOnceKafkaSink("127.0.0.1:1", query="q", topic="t")
    with pytest.raises(connector.MissingError, match=r"needs PySpark 4.0 or later"):
        connector.session("none")


@pytest.mark.parametrize("version", ["4.0.0", "4.3.0", "4.10.0.dev1"])
def test_a_later_pyspark_is_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    ExactlyOnceKafkaSink("127.0.0.1:1", query="q", topic="t")


def test_a_missing_interpreter_is_reported() -> None:
    assert environments.interpreter("2.0") is None
