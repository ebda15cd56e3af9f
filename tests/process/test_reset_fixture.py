"""The fixture `barnabas_broker`, with real brokers."""

from __future__ import annotations

import pytest

from tests.process.test_pytest_plugin import PLUGIN, ROOT

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka")


def test_a_broker_is_empty_for_each_test_and_unfired_faults_fail_theirs(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        """
        import pytest

        pids = []

        @pytest.mark.parametrize("number", range(3))
        def test_it_is_empty(barnabas_broker, number):
            from confluent_kafka.admin import AdminClient, NewTopic

            admin = AdminClient({"bootstrap.servers": barnabas_broker.bootstrap})
            assert not admin.list_topics(timeout=30).topics
            admin.create_topics([NewTopic("orders", 1)])["orders"].result()
            pids.append(barnabas_broker.pid)
            assert len(set(pids)) == 1

        def test_it_may_end(barnabas_broker):
            barnabas_broker.kill()

        def test_it_is_there_again(barnabas_broker):
            assert barnabas_broker.running

        @pytest.mark.kafka(config={"num.partitions": 3})
        def test_another(barnabas_broker):
            assert barnabas_broker.pid not in pids

        def test_a_fault_that_never_fires(barnabas_broker):
            barnabas_broker.fault("EndTxn", "hold")

        def test_nothing_is_armed(barnabas_broker):
            assert barnabas_broker.disarm_faults() == []
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN, "-p", "no:randomly", "--strict-markers")
    result.assert_outcomes(passed=7, failed=1)
    result.stdout.fnmatch_lines(["*FaultNeverFiredError: *has never fired: it matched 0*"])


def test_another_librarys_fixture_of_the_same_name_is_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def barnabas_broker():
            return lambda: 7

        def test_it(barnabas_broker):
            assert barnabas_broker() == 7

        def test_that_fails(barnabas_broker):
            assert barnabas_broker() == 8
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN, "-p", "no:randomly")
    result.assert_outcomes(passed=1, failed=1)
