"""Fixtures for pytest: `barnabas_broker`, which is empty for each test, `kafka_broker`, which a whole session shares,
`fresh_kafka_broker`, a test's own, and `barnabas_cluster`, several brokers and a controller for one test.

Settings for all of them come from the ini option `barnabas_config`, lines of `key=value` by Kafka's names, and from
`--barnabas-config key=value` on the command line, which wins. The mark `barnabas(...)` gives a test's broker or cluster
other arguments, such as `@pytest.mark.barnabas(security="sasl_ssl", users={"alice": "secret"})`. It also says what
there is when the test begins: `topics`, `faults`, a stopped `clock`. The mark `kafka(...)` takes the arguments alone.
With pytest-xdist each worker has its own brokers. A failed test shows the end of what its brokers printed.

pytest imports this file in every run of whoever has barnabas installed: it imports nothing else.
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
"""Settings of the fixtures' brokers, where nobody says otherwise."""

MARK = "kafka"
OWN_MARK = "barnabas"
OF_A_TEST = frozenset(("clock", "faults", "hazards", "topics"))
"""What the own mark says besides: what there is when the test begins."""
FROZEN = "frozen"
OF_A_BROKER = frozenset(("config", "kafka_version", "security", "tokens", "users"))
OF_A_CLUSTER = OF_A_BROKER | {"brokers", "racks"}

OF_A_TESTS_OWN = ("barnabas_broker", "fresh_kafka_broker", "barnabas_cluster")
FIXTURES = frozenset(("kafka_broker", *OF_A_TESTS_OWN))

MOST_RESET_BROKERS = 4
"""Of `barnabas_broker`, by what marks say: each is a process. The one that was not used for longest gives way."""

_shared: list[tuple[Broker, int]] = []
"""`kafka_broker` while there is one, and the process that started it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The settings, in the ini file and on the command line."""
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
    """Raises UsageError, once for the whole session, for a setting that isn't one. Workers have none to tell it to."""
    config.addinivalue_line(
        "markers",
        "kafka(security=..., users=..., config=..., ...): what the test's kafka_broker, fresh_kafka_broker or "
        "barnabas_cluster is made with, as barnabas.Broker and barnabas.Cluster take it",
    )
    config.addinivalue_line(
        "markers",
        "barnabas(topics=..., faults=[...], clock='frozen', brokers=..., security=..., hazards={...}, ...): what the "
        "test's barnabas_broker, fresh_kafka_broker or barnabas_cluster is made with, and has when the test begins",
    )
    # Where others collect, it isn't known here what the tests use.
    if not hasattr(config, "workerinput") and config.getoption("dist", "no") != "no":
        _check_settings(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests whose marks say the same share a broker, too."""
    mark = _mark_of(metafunc.definition)
    if mark is not None and "barnabas_hazard" in metafunc.fixturenames:
        hazards = mark.kwargs.get("hazards", {})
        metafunc.parametrize("barnabas_hazard", [*hazards.values()], ids=[*hazards], indirect=True)
    if mark is not None and "kafka_broker" in metafunc.fixturenames:
        wanted = _Marked(_marked(mark, OF_A_BROKER))
        wanted = _wanted.setdefault(repr(wanted), wanted)
        metafunc.parametrize("kafka_broker", [wanted], indirect=True, ids=[wanted.name], scope="session")


class _Marked:
    """What a mark says of a broker, by the names of its arguments."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = arguments

    def __repr__(self) -> str:
        return repr(sorted(self.arguments.items()))

    @property
    def name(self) -> str:
        """In the test's id."""
        return str(self.arguments.get("security", MARK))


_wanted: dict[str, _Marked] = {}
"""Each once: pytest knows the broker of one again by its being the same object."""


def _mark_of(item: pytest.Item) -> pytest.Mark | None:
    """Without arguments it may be somebody's own, for choosing tests by."""
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
    """Raises UsageError for what there is not."""
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
    """The same, where any test uses a fixture of ours: to check takes a process. And what marks say, once for all."""
    ours = [item for item in session.items if not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))]
    try:
        for item in ours:
            _check_mark(item)
    except pytest.UsageError as error:
        if not hasattr(session.config, "workerinput"):
            raise
        session.shouldfail = str(error)  # which xdist tells
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
    """Where another plugin has a `kafka_broker` as well, one of the two is hidden by the other."""
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
    """Those of `barnabas_broker`, by what marks say of them, the one used last at the end."""
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
    """What there is when the test begins."""
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
    """No fault stays armed behind its test, which fails where one had to fire and didn't."""
    outcome = yield
    for _, broker in _ours(item):
        for fault in broker.disarm_faults():
            if fault.has_to_fire and outcome.excinfo is None:
                outcome.force_exception(fault.never_fired())


def _ours(item: pytest.Item) -> Iterator[tuple[str, Any]]:
    """The fixtures of this plugin that a test has, by name; not those of its own that are called so."""
    for name in sorted(FIXTURES):
        found = getattr(item, "funcargs", {}).get(name)
        if hasattr(found, "disarm_faults"):
            yield name, found


@pytest.hookimpl(hookwrapper=True)  # not `wrapper`, which a user's older pytest would not know
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Result[pytest.TestReport], None]:
    """A failed test's report has the end of what its brokers printed, and the last requests that they were asked."""
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
    """What a test has done to the broker of all of them is told, and harms none of the others."""
    for broker, pid in _shared:
        if pid != os.getpid():  # forked, which leaves it alone
            continue
        if broker.paused:
            broker.resume()
            what = "left it paused: it goes on"
        elif not broker.running and not broker._bootstrap:
            broker.start()
            what = (
                "closed it, and its folder and port are gone: another was started, maybe on another port. "
                "fresh_kafka_broker is one to close"
            )
        elif not broker.running:
            broker.start()
            what = "ended it: it was started again, on its folder and port. fresh_kafka_broker is one to kill"
        else:
            continue
        item.warn(pytest.PytestWarning(f"kafka_broker is of all tests, and {item.nodeid} {what}"))


def _last_requests(ours: Any) -> str:
    """JSON lines. Nothing where none is kept, or nobody is there to tell."""
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
    """Of the broker or the cluster, and of what there is when the test begins."""
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
