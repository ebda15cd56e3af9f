"""The pytest plugin in a session of its own, with a stand-in for the broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests" / "support" / "stand_in_broker.py"

# Naming the plugin's module works whether or not barnabas is installed.
PLUGIN = ("-p", "no:barnabas", "-p", "barnabas.pytest_plugin")


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # Importing unrelated plugins would take longer than everything else here.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(
        f"import barnabas.broker, pathlib\nbarnabas.broker.LAUNCHER = pathlib.Path({str(STAND_IN)!r})\n"
    )
    return pytester


def test_tests_of_a_session_share_a_broker_and_a_fresh_one_is_for_one_test(session: pytest.Pytester) -> None:
    session.makepyfile(
        """
        shared, fresh = set(), set()

        def test_one(kafka_broker, fresh_kafka_broker):
            shared.add(kafka_broker.pid)
            fresh.add(fresh_kafka_broker.pid)

        def test_other(kafka_broker, fresh_kafka_broker):
            test_one(kafka_broker, fresh_kafka_broker)
            assert kafka_broker.bootstrap == f"127.0.0.1:{kafka_broker.port}"
            assert kafka_broker.running and fresh_kafka_broker.running
            assert len(shared) == 1 and len(fresh) == 2
        """
    )
    session.runpytest_subprocess(*PLUGIN, "-p", "no:randomly").assert_outcomes(passed=2)


def test_a_test_that_ends_the_shared_broker_is_named_and_harms_no_later_one(session: pytest.Pytester) -> None:
    session.makepyfile(
        """
        import os, signal, time

        addresses = set()

        def test_killed(kafka_broker):
            addresses.add(kafka_broker.bootstrap)
            kafka_broker.kill()

        def test_stopped(kafka_broker):
            assert kafka_broker.running
            kafka_broker.stop()

        def test_paused(kafka_broker):
            kafka_broker.pause()

        def test_forked(kafka_broker):
            pid = os.fork()
            if pid == 0:
                import barnabas.pytest_plugin as plugin
                plugin.pytest_runtest_teardown(None)
                os._exit(0 if not kafka_broker.running else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

        def test_later(kafka_broker):
            assert kafka_broker.running and not kafka_broker.paused
            assert {kafka_broker.bootstrap} == addresses
            assert len((kafka_broker.data / "starts").read_text().splitlines()) == 3
        """
    )
    result = session.runpytest_subprocess(*PLUGIN, "-p", "no:randomly")
    result.assert_outcomes(passed=5, warnings=3)
    name = "*all tests share kafka_broker, and test_a_test_that_ends_*.py::test"
    result.stdout.fnmatch_lines(
        [
            f"{name}_killed ended it: it was started again, on its folder and port. *",
            f"{name}_stopped ended it: *",
            f"{name}_paused left it paused: it was resumed",
        ]
    )


def test_a_test_that_closes_the_shared_broker_learns_that_its_folder_and_port_are_gone(
    session: pytest.Pytester,
) -> None:
    session.makepyfile(
        """
        folders = []

        def test_closed(kafka_broker):
            folders.append(kafka_broker.data)
            kafka_broker.close()

        def test_later(kafka_broker):
            assert kafka_broker.running and kafka_broker.data not in folders
        """
    )
    result = session.runpytest_subprocess(*PLUGIN, "-p", "no:randomly")
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*::test_closed closed it, and its folder and port are gone: *"])
    assert "on its folder and port" not in str(result.stdout)


def test_settings_come_from_the_ini_file_and_the_command_line_wins(session: pytest.Pytester) -> None:
    session.makeini("[pytest]\nbarnabas_config =\n  num.partitions = 2\n  message.max.bytes = 1000\n")
    session.makepyfile(
        """
        def test_settings(kafka_broker):
            assert '"num.partitions=5"' in kafka_broker.log
            assert '"message.max.bytes=1000"' in kafka_broker.log
        """
    )
    result = session.runpytest_subprocess(*PLUGIN, "--barnabas-config", "num.partitions=5")
    result.assert_outcomes(passed=1)


def test_a_setting_without_a_value_is_a_usage_error(session: pytest.Pytester) -> None:
    session.makepyfile("def test_it(kafka_broker): pass\ndef test_other(fresh_kafka_broker): pass")
    result = session.runpytest_subprocess(*PLUGIN, "--barnabas-config", "num.partitions")
    result.stderr.fnmatch_lines(["*a setting is key=value, and 'num.partitions' is not"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert str(result.stderr).count("is key=value") == 1


def test_a_misspelt_setting_is_an_error_that_names_the_one_meant(session: pytest.Pytester) -> None:
    session.makeconftest("")  # with the real broker, which writes this error
    session.makepyfile("def test_it(kafka_broker): pass\ndef test_other(fresh_kafka_broker): pass")
    for further in ((), ("-p", "xdist", "-n", "2")):
        result = session.runpytest_subprocess(*PLUGIN, *further, "--barnabas-config", "num.partitons=3")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        line = "ERROR: barnabas: -o: num.partitons isn't a setting of a Kafka broker; did you mean num.partitions?"
        assert [each for each in result.errlines if each] == [line]
        assert "num.partitons" not in str(result.stdout)


def test_settings_are_checked_once_and_only_where_a_broker_is_used(session: pytest.Pytester) -> None:
    session.makeconftest(
        """
        import barnabas.broker, pathlib

        def check_settings(config):
            with pathlib.Path("checks").open("a") as checks:
                checks.write("check\\n")

        barnabas.broker.check_settings = check_settings
        """
    )
    checks = session.path / "checks"
    setting = ("--barnabas-config", "num.partitions=3", "--collect-only")
    session.makepyfile("def test_it(): pass")
    session.runpytest_subprocess(*PLUGIN, *setting)
    assert not checks.exists()
    session.makepyfile("def test_it(kafka_broker): pass\ndef test_other(barnabas_cluster): pass")
    session.runpytest_subprocess(*PLUGIN, "--collect-only")
    assert not checks.exists()
    session.runpytest_subprocess(*PLUGIN, *setting)
    assert checks.read_text() == "check\n"


def test_a_setting_of_the_environment_is_no_error_of_a_session(
    session: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "none")
    session.makeconftest("")
    session.makepyfile("def test_it(): pass\ndef test_other(kafka_broker): pass")
    result = session.runpytest_subprocess(*PLUGIN, "--barnabas-config", "num.partitions=3")
    result.assert_outcomes(passed=2)


def test_a_parameter_of_a_broker_is_its_further_settings(session: pytest.Pytester) -> None:
    session.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("fresh_kafka_broker", [{"num.partitions": 7}], indirect=True)
        def test_fresh(fresh_kafka_broker):
            assert '"num.partitions=7"' in fresh_kafka_broker.log
            assert '"message.max.bytes=1000"' in fresh_kafka_broker.log

        @pytest.mark.parametrize("kafka_broker", [{"num.partitions": 8}], indirect=True)
        def test_shared(kafka_broker):
            assert '"num.partitions=8"' in kafka_broker.log

        @pytest.mark.parametrize("fresh_kafka_broker", [7], indirect=True)
        def test_nonsense(fresh_kafka_broker): pass
        """
    )
    result = session.runpytest_subprocess(*PLUGIN, "--barnabas-config", "message.max.bytes=1000")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*a parameter of fresh_kafka_broker is a dict of settings, and 7 is not*"])


def test_each_worker_of_xdist_has_its_own_broker(session: pytest.Pytester) -> None:
    session.makepyfile(
        """
        import os, pathlib, pytest

        @pytest.mark.parametrize("turn", range(4))
        def test_it(kafka_broker, turn):
            pathlib.Path(f"seen-{os.environ['PYTEST_XDIST_WORKER']}-{kafka_broker.pid}").touch()
        """
    )
    session.runpytest_subprocess(*PLUGIN, "-p", "xdist", "-n", "2", "--dist", "each").assert_outcomes(
        passed=8
    )
    seen = [name.name.split("-")[1:] for name in session.path.glob("seen-*")]
    assert sorted(worker for worker, pid in seen) == ["gw0", "gw1"]
    assert len({pid for worker, pid in seen}) == 2


def test_a_failed_test_shows_its_brokers_output(session: pytest.Pytester) -> None:
    session.makepyfile("def test_it(fresh_kafka_broker): assert False")
    result = session.runpytest_subprocess(*PLUGIN)
    result.stdout.fnmatch_lines(["*what fresh_kafka_broker printed*", "arguments: *"])


def test_the_plugin_loads_nothing_that_pytest_has_not_loaded() -> None:
    code = (
        "import sys, pytest, _pytest.config; before = set(sys.modules); import barnabas.pytest_plugin; "
        "print(sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert loaded.stdout.strip() == "['barnabas', 'barnabas.pytest_plugin']"


def test_a_cluster_belongs_to_one_test_and_its_parameter_describes_it(session: pytest.Pytester) -> None:
    session.makeconftest("")  # the nodes have to know each other, so they are real brokers
    session.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize(
            "barnabas_cluster",
            [{"brokers": 2, "racks": ["a"], "config": {"num.partitions": 5}}],
            indirect=True,
        )
        def test_cluster(barnabas_cluster):
            assert [broker.node_id for broker in barnabas_cluster] == [1, 2]
            assert "started" in barnabas_cluster[2].log
            barnabas_cluster[2].kill()
            assert False, "for what is shown then"

        @pytest.mark.parametrize("barnabas_cluster", [{"nodes": 7}], indirect=True)
        def test_nonsense(barnabas_cluster): pass
        """
    )
    result = session.runpytest_subprocess(*PLUGIN, "-p", "no:randomly")
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*has brokers, racks and config, and not nodes*",
            "*for what is shown then*",
            "*what <barnabas.Cluster controller 100*> printed*",
            "*KafkaServer id=100* started*",
            "*what <barnabas.Cluster broker 1, *> printed*",
            "*KafkaServer id=1* started*",
            "*what <barnabas.Cluster broker 2, not running> printed*",
            "*KafkaServer id=2* started*",
        ]
    )


def test_a_mark_describes_a_broker_and_a_cluster_and_equal_marks_share_one(
    session: pytest.Pytester,
) -> None:
    session.makeconftest("")
    session.makepyfile(
        """
        import pytest

        pids = {}
        secured = pytest.mark.kafka(security="sasl_plaintext", users={"alice": "secret"})

        @secured
        def test_one(kafka_broker):
            pids[1] = kafka_broker.pid
            assert kafka_broker.client_config("alice")["sasl.password"] == "secret"
            kafka_broker.allow("alice", "write", topic="orders")

        @secured
        def test_two(kafka_broker):
            assert kafka_broker.pid == pids[1]

        def test_plain(kafka_broker):
            assert kafka_broker.client_config()["security.protocol"] == "PLAINTEXT"

        @pytest.mark.kafka
        def test_tag(kafka_broker):
            assert kafka_broker.client_config()["security.protocol"] == "PLAINTEXT"

        @pytest.mark.kafka(security="plaintext", config={"num.partitions": 3})
        class TestFresh:
            def test_fresh(self, fresh_kafka_broker):
                assert fresh_kafka_broker.pid not in pids.values()
                assert fresh_kafka_broker.denials == []

        @pytest.mark.kafka(security="sasl_plaintext", users=["bob"], brokers=1)
        def test_cluster(barnabas_cluster):
            assert len(barnabas_cluster) == 1
            assert barnabas_cluster.client_config("bob")["sasl.username"] == "bob"
        """
    )
    result = session.runpytest_subprocess(*PLUGIN, "-p", "no:randomly", "--strict-markers", "-v")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["*::test_one[[]sasl_plaintext] PASSED*", "*::test_tag PASSED*"])


@pytest.mark.parametrize("fixture", ["kafka_broker", "fresh_kafka_broker", "barnabas_cluster"])
def test_an_impossible_mark_is_an_error_that_names_the_possible_ones(
    session: pytest.Pytester, fixture: str
) -> None:
    session.makepyfile(
        f"import pytest\n@pytest.mark.kafka('sasl_ssl', user='alice')\ndef test_it({fixture}): pass"
    )
    result = session.runpytest_subprocess(*PLUGIN)
    told = "*the mark kafka takes *security, tokens, users, each by its name, and not 'sasl_ssl', user*"
    # a shared broker's error comes when it is made; the others' come once all tests are collected
    (result.stdout if fixture == "kafka_broker" else result.stderr).fnmatch_lines([told])


def test_an_unknown_security_is_reported_in_a_line(session: pytest.Pytester) -> None:
    session.makepyfile(
        "import pytest\n@pytest.mark.kafka(security='tls')\ndef test_it(fresh_kafka_broker): pass"
    )
    result = session.runpytest_subprocess(*PLUGIN)
    result.stderr.fnmatch_lines(["*barnabas: the mark kafka: security='tls': it can be plaintext, ssl, *"])
    assert "Traceback" not in result.stdout.str()
