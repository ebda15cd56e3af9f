"""What is said where Spark can't run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from barnabas.spark import connector

ROOT = Path(__file__).parents[2]


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.mark.usefixtures("no_java")
def test_without_java_a_session_says_that_and_how_to_get_it() -> None:
    with pytest.raises(connector.MissingError, match=r"needs Java 17 or later.*openjdk-17"):
        connector.session("none")


@pytest.mark.parametrize(("java_home", "status"), [("/some/java", 0), ("", 2), (None, 2)])
def test_make_takes_a_java_home_for_java_as_a_session_does(
    tmp_path: Path, java_home: str | None, status: int
) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    environment = {"PATH": str(tmp_path)} | ({} if java_home is None else {"JAVA_HOME": java_home})
    made = subprocess.run(
        [make, "needs-java", "PYTHON=none"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == status
    assert ("needs Java 17" in made.stderr) is bool(status)


@pytest.mark.usefixtures("no_java")
def test_without_java_the_jars_are_not_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connector, "IVY_JARS", tmp_path)

    assert connector.main() == 2
    assert "needs Java" in capsys.readouterr().err


@pytest.mark.parametrize("fails", [False, True])
def test_ivys_output_is_shown_where_it_fails_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], fails: bool
) -> None:
    class Session:
        def stop(self) -> None:
            if fails:
                raise connector.MissingError("see its output above")

    def session(name: str) -> Session:
        os.write(1, b":: resolving dependencies ::\n")
        os.write(2, b"downloading a jar\n")
        return Session()

    monkeypatch.setattr(connector, "IVY_JARS", tmp_path)
    monkeypatch.setattr(connector, "session", session)
    assert connector.main() == (2 if fails else 0)
    out, err = capfd.readouterr()
    assert out.startswith(f"Fetching {connector.package()} with what it needs (60 MB)")
    assert out.count("\n") == (1 if fails else 2)
    noise = ":: resolving dependencies ::\ndownloading a jar\nsee its output above\n"
    assert err == (noise if fails else "")


@pytest.mark.parametrize(
    ("version", "taken"),
    [("4.0.5", "4.0.0"), ("4.1.0", "4.1.1"), ("4.2.1", "4.2.0"), ("4.3.0", "4.2.0"), ("4.4.2", "4.4.0")],
)
def test_the_connector_is_of_an_available_version(
    monkeypatch: pytest.MonkeyPatch, version: str, taken: str
) -> None:
    monkeypatch.setattr("pyspark.__version__", version)

    assert connector.package() == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{taken}"


def test_jars_that_were_fetched_are_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(connector, "IVY_JARS", tmp_path)
    assert not connector.is_fetched()

    group, artifact, version = connector.package().split(":")
    (tmp_path / f"{group}_{artifact}-{version}.jar").touch()
    assert connector.is_fetched()
