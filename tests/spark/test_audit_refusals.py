"""Where the audit can't count, its command line says why in a line and ends with a status of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("kafka", reason="needs kafka-python, of the extra `spark`")
pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from barnabas.spark.audit import __main__ as command
from barnabas.spark.audit import refusals
from barnabas.spark.errors import ResponseError
from tests.spark.topics import Transactions, create_topic

Names = Callable[[str], str]
Captured = pytest.CaptureFixture[str]
NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(*arguments: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr(command.connector, "session", session)


def said(capsys: Captured, *arguments: str) -> str:
    """The only line of a run that ends with status 2, without the program's name."""
    assert command.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err.removeprefix("barnabas.spark.audit: ").strip()


def test_a_topic_that_does_not_exist_is_named_with_its_broker(
    barnabas_bootstrap: str, name: Names, capsys: Captured
) -> None:
    topic = name("nope")
    line = said(capsys, barnabas_bootstrap, topic)
    assert line == f"{topic} at {barnabas_bootstrap}: Metadata of {topic}: UnknownTopicOrPartition (3)"


def test_a_broker_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(command, "TIMEOUT_MS", 200)
    assert f"t at {NOWHERE}: KafkaTimeoutError: Unable to bootstrap" in said(capsys, NOWHERE, "t")


def test_security_settings_that_do_not_fit_are_refused(barnabas_bootstrap: str, capsys: Captured) -> None:
    sasl = ["security_protocol=SASL_PLAINTEXT", "sasl_mechanism=PLAIN"]
    sasl += ["sasl_plain_username=u", "sasl_plain_password=p"]
    line = said(capsys, barnabas_bootstrap, "t", *(word for pair in sasl for word in ("--client", pair)))
    assert "IllegalSaslState" in line

    assert "nonsense" in said(capsys, NOWHERE, "t", "--client", "nonsense=1")


def test_a_setting_without_a_value_is_a_matter_of_usage(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([NOWHERE, "t", "--client", "security_protocol"])
    assert ended.value.code == 2
    assert "'security_protocol' is not name=value" in capsys.readouterr().err


def test_an_internal_topic_is_counted_only_without_a_key(
    bootstrap: str, name: Names, capsys: Captured
) -> None:
    Transactions(bootstrap, name("one")).committed(create_topic(bootstrap, name("t")), ["v"])
    topic = "__transaction_state"
    assert f"no internal topics, and {topic} is one" in said(capsys, bootstrap, topic, "--key", "key")

    refusals.check_topics(bootstrap, [topic], keyed=False, client={}, timeout_ms=30_000)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_no_existing_file_is_overwritten(tmp_path: Path, capsys: Captured, scheme: str) -> None:
    folder = f"{scheme}{tmp_path}"
    assert f"{folder} exists already" in said(capsys, NOWHERE, "t", "--parquet", folder)


def test_an_unforeseen_error_is_shown_whole_and_is_no_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise KeyError("partition")

    monkeypatch.setattr(refusals, "check_topics", fail)
    assert command.main([NOWHERE, "t"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith(f"t at {NOWHERE}: 'partition'\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[UNRESOLVED_COLUMN] no_such_col; line 1 pos 0;\n'Project [key]\n+- Relation", None),
        (
            "An error occurred while calling o7.collect.\n: org.apache.spark.SparkException: aborted\n\tat a.b(C:1)\n"
            "Caused by: a.b.Middle: x\n\tat a.b(C:2)\nCaused by: java.net.ConnectException: refused\n\t... 9 more\n",
            "java.net.ConnectException: refused",
        ),
        (
            "Job aborted: Lost task 0.0: a.PythonException: Traceback (most recent call last):\n"
            '  File "scan.py", line 1, in take\n    raise\n'
            "x.UnreadableBatchError: a batch of format 1\n\n\tat a.b(C:1)\n"
            "Caused by: a.b.Middle: x\n",
            "x.UnreadableBatchError: a batch of format 1",
        ),
        ("", "RuntimeError"),
    ],
)
def test_of_sparks_long_texts_the_line_with_the_reason_is_shown(text: str, line: str | None) -> None:
    assert refusals.reason(RuntimeError(text)) == (line or text.splitlines()[0])
    assert refusals.reason(ResponseError(3, "Unknown", "Metadata")) == "Metadata: Unknown (3)"


def test_without_pyspark_it_says_so(barnabas_bootstrap: str, name: Names) -> None:
    topic = create_topic(barnabas_bootstrap, name("t"))
    program = (
        "import runpy, sys, warnings; warnings.simplefilter('ignore'); sys.modules['pyspark'] = None; "
        f"sys.argv[1:] = [{barnabas_bootstrap!r}, {topic!r}]; "
        "runpy.run_module('barnabas.spark.audit', run_name='__main__')"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "pyspark is not installed: pip install" in run.stderr
    assert "Traceback" not in run.stderr
