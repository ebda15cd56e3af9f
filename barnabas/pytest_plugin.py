"""Fixtures for pytest: `barnabas_broker`, which is empty for each test, `kafka_broker`, which a whole session shares,
`fresh_kafka_broker`, which belongs to one test, and `barnabas_cluster`, several brokers and a controller for one test.

Settings for all of them come from the ini option `barnabas_config`, lines of `key=value` by Kafka's names, and from
`--barnabas-config key=value` on the command line, which wins. The mark `barnabas(...)` gives a test's broker or cluster
other arguments, such as `@pytest.mark.barnabas(security="sasl_ssl", users={"alice": "secret"})`. It also prepares the
test: `topics`, `faults`, a stopped `clock`. The mark `kafka(...)` takes only the arguments. With pytest-xdist each
worker has its own brokers. The report of a failed test shows the end of its brokers' output.

pytest imports this file in every run of everybody who has barnabas installed, so it imports nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pluggy import Result

    from barnabas.broker import Broker
    from barnabas.cluster import Cluster

LOG_LINES_SHOWN = 60
REQUESTS_SHOWN = 100

OF_OURS: dict[str, object] = {"barnabas.journal.size": 1_000}
"""Settings of the fixtures' brokers, unless a test or the user sets them."""

MARK = "kafka"
OWN_MARK = "barnabas"
OF_A_TEST = frozenset(("clock", "faults", "hazards", "topics"))
"""The arguments of the `barnabas` mark that prepare the test, beside those of the broker."""
FROZEN = "frozen"
OF_A_BROKER = frozenset(("config", "kafka_version", "security", "tokens", "users"))
OF_A_CLUSTER = OF_A_BROKER | {"brokers", "racks"}

OF_A_TESTS_OWN = ("barnabas_broker", "fresh_kafka_broker", "barnabas_cluster")
FIXTURES = frozenset(("kafka_broker", *OF_A_TESTS_OWN))

MOST_RESET_BROKERS = 4
"""The most brokers kept for `barnabas_broker`, one process for each combination of settings. The least recently used
one gives way."""

_shared: list[tuple[Broker, int]] = []
"""The `kafka_broker`, if there is one, with the id of the process that started it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings to the ini file's options and the command line's."""
    parser.addini(
        "barnabas_config",
        type="linelist",
        default=[],
        help="settings of the fixtures' brokers, key=value a line",
    )
    parser.getgroup("barnabas", "barnabas, a Kafka broker").addoption(
        "--barnabas-config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the fixtures' brokers by Kafka's name, such as num.partitions=3; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Raise UsageError for a wrong setting, once for the whole session. xdist's workers can't report it."""
    config.addinivalue_line(
        "markers",
        "kafka(security=..., users=..., config=..., ...): arguments for the test's kafka_broker, fresh_kafka_broker or "
        "barnabas_cluster, as barnabas.Broker and barnabas.Cluster take them",
    )
    config.addinivalue_line(
        "markers",
        "barnabas(topics=..., faults=[...], clock='frozen', brokers=..., security=..., hazards={...}, ...): arguments "
        "of the test's barnabas_broker, fresh_kafka_broker or barnabas_cluster, and its state when the test begins",
    )
    # If workers collect the tests, this process doesn't know yet which fixtures they use.
    if not hasattr(config, "workerinput") and config.getoption("dist", "no") != "no":
        _check_settings(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let tests with equal marks share a broker."""
    mark = _mark_of(metafunc.definition)
    if mark is not None and "barnabas_hazard" in metafunc.fixturenames:
        hazards = mark.kwargs.get("hazards", {})
        metafunc.parametrize("barnabas_hazard", [*hazards.values()], ids=[*hazards], indirect=True)
    if mark is not None and "kafka_broker" in metafunc.fixturenames:
        wanted = _Marked(_marked(mark, OF_A_BROKER))
        wanted = _wanted.setdefault(repr(wanted), wanted)
        metafunc.parametrize("kafka_broker", [wanted], indirect=True, ids=[wanted.name], scope="session")


class _Marked:
    """The arguments that a mark gives for a broker."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = arguments

    def __repr__(self) -> str:
        return repr(sorted(self.arguments.items()))

    @property
    def name(self) -> str:
        """Its name in the test's id."""
        return str(self.arguments.get("security", MARK))


_wanted: dict[str, _Marked] = {}
"""One object for each combination of arguments. pytest recognizes a parameter by the object's identity."""


def _mark_of(item: pytest.Item) -> pytest.Mark | None:
    """Return the test's mark, or None. A mark without arguments may be somebody's own, for selecting tests."""
    for name in (OWN_MARK, MARK):
        mark = item.get_closest_marker(name)
        if mark is not None and (mark.args or mark.kwargs):
            return mark
    return None


def _known_to(fixture: str, mark: pytest.Mark) -> frozenset[str]:
    known = OF_A_CLUSTER if fixture == "barnabas_cluster" else OF_A_BROKER
    if mark.name != OWN_MARK or fixture == "kafka_broker":
        return known
    return known | (OF_A_TEST - {"clock"} if fixture == "barnabas_cluster" else OF_A_TEST)


def _marked(mark: pytest.Mark, known: frozenset[str]) -> Mapping[str, Any]:
    """Return the mark's arguments. Raises UsageError for unknown ones."""
    unknown = mark.kwargs.keys() - known
    if mark.args or unknown:
        what = ", ".join([*map(repr, mark.args), *sorted(unknown)])
        raise pytest.UsageError(
            f"barnabas: the mark {mark.name} takes {', '.join(sorted(known))}, each by its name, and not {what}"
        )
    security = mark.kwargs.get("security")
    if security is not None:
        from barnabas.security import protocol_of

        try:
            protocol_of(security)
        except ValueError as error:
            raise pytest.UsageError(f"barnabas: the mark {mark.name}: {error}") from None
    clock = mark.kwargs.get("clock", FROZEN)
    if clock != FROZEN:
        raise pytest.UsageError(f"barnabas: the mark {mark.name}: clock={clock!r}: it can be {FROZEN!r}")
    return mark.kwargs


def pytest_collection_finish(session: pytest.Session) -> None:
    """Check the settings, if any test uses one of our fixtures: the check takes a process. Also check all marks."""
    ours = [item for item in session.items if not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))]
    try:
        for item in ours:
            _check_mark(item)
    except pytest.UsageError as error:
        if not hasattr(session.config, "workerinput"):
            raise
        session.shouldfail = str(error)  # xdist reports this
        return
    if ours and not hasattr(session.config, "workerinput"):
        _check_settings(session.config)
        _name_others(session)


def _check_mark(item: pytest.Item) -> None:
    """Raises UsageError."""
    mark = _mark_of(item)
    if mark is not None:
        for fixture in FIXTURES.intersection(getattr(item, "fixturenames", ())):
            _marked(mark, _known_to(fixture, mark))


def _name_others(session: pytest.Session) -> None:
    """Warn if another plugin has a `kafka_broker`, too: one of the two hides the other."""
    uses = any("kafka_broker" in getattr(item, "fixturenames", ()) for item in session.items)
    known = getattr(getattr(session, "_fixturemanager", None), "_arg2fixturedefs", {})
    of_plugins = [each.func.__module__ for each in known.get("kafka_broker", ()) if not each.baseid]
    others = [name for name in of_plugins if name != __name__]
    if uses and others and len(of_plugins) > len(others):
        session.config.issue_config_time_warning(
            pytest.PytestWarning(
                f"kafka_broker is a fixture of {' and '.join(others)}, too, and here it is that of {of_plugins[-1]}; "
                "barnabas_broker and fresh_kafka_broker are nobody else's"
            ),
            stacklevel=2,
        )


def _check_settings(config: pytest.Config) -> None:
    settings = _settings(config)
    if settings:
        from barnabas.broker import check_settings

        refusal = check_settings(settings)
        if refusal is not None:
            raise pytest.UsageError(f"barnabas: {refusal}")


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker that all tests of the session share. `kafka_broker.bootstrap` is its address.

    Topics and rights outlive a test, so give each test its own. If a test ends the broker, it is started again. An
    indirect parameter is a dict of further settings. There is one broker at a time for each such dict, and for each
    different mark.
    """
    given = getattr(request, "param", {})
    with _broker(request, given.arguments if isinstance(given, _Marked) else {"config": given}) as broker:
        shared = broker, os.getpid()
        _shared.append(shared)
        try:
            yield broker
        finally:
            _shared.remove(shared)


@pytest.fixture(scope="session")
def _reset_brokers() -> Iterator[dict[str, Broker]]:
    """The brokers of `barnabas_broker` by their settings, the most recently used one last."""
    brokers: dict[str, Broker] = {}
    try:
        yield brokers
    finally:
        for broker in brokers.values():
            broker.close()


@pytest.fixture
def barnabas_broker(request: pytest.FixtureRequest, _reset_brokers: dict[str, Broker]) -> Broker:
    """A broker that is empty when the test begins. The session keeps it, and resets it for each test in milliseconds. A
    test may stop, kill and restart it. An indirect parameter is a dict of further settings."""
    said, of_test = _said_by_mark(request)
    wanted = {**said, "config": {**said.get("config", {}), **_parameter(request)}}
    key = repr(sorted(wanted.items()))
    broker = _reset_brokers.pop(key, None)
    if broker is None or not broker.running or broker.paused:
        if broker is not None:
            broker.kill()
            broker.close()
        while len(_reset_brokers) >= MOST_RESET_BROKERS:
            _reset_brokers.pop(next(iter(_reset_brokers))).close()
        broker = _broker(request, wanted).start()
    else:
        broker.reset()
    _reset_brokers[key] = broker
    _begin(broker, of_test)
    return broker


@pytest.fixture
def fresh_kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """An empty broker for this test alone, which may stop, kill and restart it. An indirect parameter is a dict of
    further settings."""
    said, of_test = _said_by_mark(request)
    config = {**said.get("config", {}), **_parameter(request)}
    with _broker(request, {**said, "config": config}) as broker:
        _begin(broker, of_test)
        yield broker


@pytest.fixture
def barnabas_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of three brokers for this test alone. An indirect parameter is a dict with any of `brokers`, `racks`
    and `config`, as `barnabas.Cluster` takes them."""
    from barnabas.cluster import Cluster

    given = _parameter(request)
    unknown = given.keys() - {"brokers", "racks", "config"}
    if unknown:
        raise TypeError(
            f"a parameter of barnabas_cluster has brokers, racks and config, and not {', '.join(unknown)}"
        )
    said, of_test = _said_by_mark(request)
    wanted: dict[str, Any] = {
        "brokers": 3,
        **said,
        **given,
        "config": {
            **OF_OURS,
            **_settings(request.config),
            **said.get("config", {}),
            **given.get("config", {}),
        },
    }
    with Cluster(**wanted) as cluster:
        _begin(cluster, of_test)
        yield cluster


def _begin(ours: Any, of_test: Mapping[str, Any]) -> None:
    """Prepare the broker or cluster as the mark says: topics, clock and faults."""
    ours.create_topics(of_test.get("topics", {}))
    if of_test.get("clock") == FROZEN:
        ours.clock.freeze()
    for said in of_test.get("faults", ()):
        ours.fault(**said)


@pytest.fixture
def barnabas_hazard(request: pytest.FixtureRequest) -> Any:
    """One of the mark's `hazards`, which are faults with names. The test runs once for each of them. The fault is armed
    at the test's broker or cluster. If the mark has None for it, nothing goes wrong, and this is None."""
    said = getattr(request, "param", None)
    for name in OF_A_TESTS_OWN:
        if name in request.fixturenames:
            return None if said is None else request.getfixturevalue(name).fault(**said)
    raise pytest.UsageError(f"barnabas: barnabas_hazard needs one of {', '.join(OF_A_TESTS_OWN)}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Result[None], None]:
    """Disarm all faults after a test. The test fails if a fault had to fire and didn't."""
    outcome = yield
    for _, broker in _ours(item):
        for fault in broker.disarm_faults():
            if fault.has_to_fire and outcome.excinfo is None:
                outcome.force_exception(fault.never_fired())


def _ours(item: pytest.Item) -> Iterator[tuple[str, Any]]:
    """Yield the fixtures of this plugin that a test uses, by name, without the test's own fixtures of these names."""
    for name in sorted(FIXTURES):
        found = getattr(item, "funcargs", {}).get(name)
        if hasattr(found, "disarm_faults"):
            yield name, found


@pytest.hookimpl(hookwrapper=True)  # not `wrapper`, which a user's older pytest would not know
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Result[pytest.TestReport], None]:
    """Add the end of the brokers' output, and the last requests to them, to the report of a failed test."""
    report = (yield).get_result()
    if not report.failed:
        return
    for name, ours in _ours(item):
        if asked := _last_requests(ours):
            report.sections.append((f"what {name} was asked", asked))
        nodes = getattr(ours, "nodes", None)
        if nodes is None:
            report.sections.append((f"what {name} printed", _tail(ours)))
        else:
            for node in nodes:
                report.sections.append((f"what {node!r} printed", _tail(node)))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Warn if a test has harmed the shared broker, and restore it for the other tests."""
    for broker, pid in _shared:
        if pid != os.getpid():  # a forked process leaves the broker alone
            continue
        if broker.paused:
            broker.resume()
            what = "left it paused: it was resumed"
        elif not broker.running and not broker._bootstrap:
            broker.start()
            what = (
                "closed it, and its folder and port are gone: a new one was started, maybe on another port. "
                "Close fresh_kafka_broker instead"
            )
        elif not broker.running:
            broker.start()
            what = "ended it: it was started again, on its folder and port. Kill fresh_kafka_broker instead"
        else:
            continue
        item.warn(pytest.PytestWarning(f"all tests share kafka_broker, and {item.nodeid} {what}"))


def _last_requests(ours: Any) -> str:
    """Return the last requests as JSON lines, or "" if no journal is kept or nobody can answer."""
    from barnabas.child import BrokerError
    from barnabas.journal import lines

    try:
        return lines(ours.journal()[-REQUESTS_SHOWN:]) if ours.running and not _is_paused(ours) else ""
    except (BrokerError, RuntimeError, ValueError):
        return ""


def _is_paused(ours: Any) -> bool:
    return any(node.paused for node in getattr(ours, "nodes", [ours]))


def _tail(broker: Broker) -> str:
    return "\n".join(broker.log.splitlines()[-LOG_LINES_SHOWN:])


def _broker(request: pytest.FixtureRequest, wanted: Mapping[str, Any]) -> Broker:
    from barnabas.broker import Broker

    further = _checked(request, wanted.get("config", {}))
    arguments: dict[str, Any] = {**wanted, "config": {**OF_OURS, **_settings(request.config), **further}}
    return Broker(**arguments)


def _said_by_mark(request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the mark's arguments into those of the broker or cluster, and those that prepare the test."""
    mark = _mark_of(request.node)
    if mark is None:
        return {}, {}
    said = _marked(mark, _known_to(str(request.fixturename), mark))
    return (
        {name: value for name, value in said.items() if name not in OF_A_TEST},
        {name: value for name, value in said.items() if name in OF_A_TEST},
    )


def _parameter(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    return _checked(request, getattr(request, "param", {}))


def _checked(request: pytest.FixtureRequest, given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise TypeError(f"a parameter of {request.fixturename} is a dict of settings, and {given!r} is not")
    return given


def _settings(config: pytest.Config) -> dict[str, object]:
    settings: dict[str, object] = {}
    for line in [*config.getini("barnabas_config"), *config.getoption("--barnabas-config", [])]:
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise pytest.UsageError(f"barnabas: a setting is key=value, and {line!r} is not")
        settings[key.strip()] = value.strip()
    return settings
