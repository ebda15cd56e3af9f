"""The mark `barnabas`, with real brokers."""

from __future__ import annotations

import pytest

from tests.process.test_pytest_plugin import PLUGIN, ROOT


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


def test_a_test_begins_with_the_marks_topics_faults_and_clock(session: pytest.Pytester) -> None:
    session.makepyfile(
        """
        import pytest

        lost = {"api": "EndTxn", "do": "drop", "at": "answer", "may_not_fire": True}

        @pytest.mark.barnabas(topics={"orders": 3}, faults=[lost], clock="frozen")
        def test_all(barnabas_broker):
            assert barnabas_broker.records("orders") == []
            assert barnabas_broker.clock.frozen
            assert len(barnabas_broker.disarm_faults()) == 1

        def test_nothing(barnabas_broker):
            assert not barnabas_broker.clock.frozen
            assert barnabas_broker.disarm_faults() == []
            with pytest.raises(LookupError):
                barnabas_broker.records("orders")

        @pytest.mark.barnabas(topics=["one"], config={"num.partitions": 2})
        def test_fresh(fresh_kafka_broker):
            assert fresh_kafka_broker.records("one", partition=1) == []

        @pytest.mark.barnabas(faults=[{"api": "EndTxn", "do": "hold"}])
        def test_that_never_fires(barnabas_broker):
            pass

        @pytest.mark.barnabas(brokers=1, topics={"orders": 2})
        def test_cluster(barnabas_cluster):
            assert len(barnabas_cluster) == 1
            assert barnabas_cluster.records("orders") == []

        @pytest.mark.barnabas
        def test_a_tag(barnabas_broker):
            assert barnabas_broker.running
        """
    )
    result = session.runpytest_subprocess(*PLUGIN, "-p", "no:randomly", "--strict-markers")
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["*FaultNeverFiredError: *has never fired: it matched 0*"])


def test_a_test_runs_once_for_each_hazard(session: pytest.Pytester) -> None:
    session.makepyfile(
        """
        import pytest

        hazards = {
            "nothing": None,
            "held": {"api": "Metadata", "do": "hold", "may_not_fire": True},
            "never": {"api": "EndTxn", "do": "hold"},
        }

        @pytest.mark.barnabas(hazards=hazards, topics={"orders": 1})
        def test_it(barnabas_broker, barnabas_hazard):
            assert barnabas_broker.records("orders") == []
            assert barnabas_hazard is None or barnabas_hazard.seen == 0
        """
    )
    result = session.runpytest_subprocess(*PLUGIN, "-p", "no:randomly", "-v")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*test_it?nothing? PASSED*", "*test_it?held? PASSED*", "*test_it?never? FAILED*"]
    )


@pytest.mark.parametrize(
    ("said", "fixture", "told"),
    [
        (
            "topic=3",
            "barnabas_broker",
            "the mark barnabas takes clock, config, faults, hazards, *, and not topic",
        ),
        ("brokers=3", "barnabas_broker", "the mark barnabas takes *, and not brokers"),
        ("topics={}", "kafka_broker", "the mark barnabas takes *, and not topics"),
        ("clock='frozen'", "barnabas_cluster", "the mark barnabas takes *, and not clock"),
        ("clock='stopped'", "barnabas_broker", "clock='stopped': it can be 'frozen'"),
    ],
)
def test_an_impossible_mark_fails_the_session_once(
    session: pytest.Pytester, said: str, fixture: str, told: str
) -> None:
    session.makepyfile(
        f"""
        import pytest

        @pytest.mark.barnabas({said})
        @pytest.mark.parametrize("number", range(3))
        def test_it({fixture}, number): pass
        """
    )
    result = session.runpytest_subprocess(*PLUGIN, "-rN")  # in CI pytest's summary repeats each error in full
    text = result.stdout.str() + result.stderr.str()
    assert result.ret != 0
    assert text.count("barnabas: the mark barnabas") == 1, text
    # otherwise the tests aren't even collected
    result.assert_outcomes(errors=1 if fixture == "kafka_broker" else 0)
    (result.stdout if fixture == "kafka_broker" else result.stderr).fnmatch_lines([f"*{told}*"])


def test_with_xdist_it_fails_the_session_and_no_test_runs(session: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    session.makepyfile(
        """
        import pytest

        @pytest.mark.barnabas(topic=3)
        @pytest.mark.parametrize("number", range(20))
        def test_it(barnabas_broker, number): pass
        """
    )
    result = session.runpytest_subprocess(*PLUGIN, "-p", "xdist", "-n", "2")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*the mark barnabas takes *, and not topic*"])
    assert "Traceback" not in result.stdout.str()
    assert result.parseoutcomes().get("errors", 0) <= 2, "one of each worker at most"


def test_a_fixture_of_the_same_name_of_another_plugin_is_named(session: pytest.Pytester) -> None:
    session.makepyfile(
        other="""
        import pytest

        @pytest.fixture(scope="session")
        def kafka_broker():
            return 7
        """
    )
    session.makepyfile("def test_it(kafka_broker): assert kafka_broker")
    result = session.runpytest_subprocess(*PLUGIN, "-p", "other")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*kafka_broker is a fixture of other, too, and here it is that of *barnabas_broker*"]
    )
