"""Which requests a console accepts: by host name, by page, and by token."""

from __future__ import annotations

import json

import pytest

from cli.console.app import _answered
from cli.console.guard import Guard, cookie_name
from tests.cli.conftest import ON_OURS_ALONE
from tests.cli.console.asking import Asking
from tests.cli.console.conftest import console_of

OWN = {"host": "127.0.0.1:8095"}
OF_PAGE = {**OWN, "origin": "http://127.0.0.1:8095", "x-barnabas": "1"}
HERE = Guard("127.0.0.1", "")
ANYWHERE = Guard("0.0.0.0", "secret", ("kafka.example",))


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8095", "localhost:8095", "[::1]:8095", "localhost", "LOCALHOST:8095"]
)
def test_the_names_of_this_machine_are_known(host: str) -> None:
    assert HERE.refuses("GET", {"host": host}, {}) is None


def test_a_name_that_was_given_is_known_however_it_is_written() -> None:
    guard = Guard("127.0.0.1", "", ("Kafka.Example",))
    for host in ("kafka.example:8095", "KAFKA.example"):
        assert guard.refuses("GET", {"host": host}, {}) is None


@pytest.mark.parametrize("host", ["evil.example:8095", "", "127.0.0.1.evil.example", "192.168.0.7:8095"])
def test_another_host_name_is_refused_since_it_may_be_pointed_here(host: str) -> None:
    refused = HERE.refuses("GET", {"host": host}, {})
    assert refused is not None
    assert refused[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:8096", ""])
def test_a_page_of_another_origin_is_refused(origin: str) -> None:
    refused = HERE.refuses("GET", {**OWN, "origin": origin}, {})
    assert refused is not None
    assert refused[0] == 403


def test_a_browser_that_names_another_site_is_refused() -> None:
    assert HERE.refuses("GET", {**OWN, "sec-fetch-site": "same-origin"}, {}) is None
    refused = HERE.refuses("GET", {**OWN, "sec-fetch-site": "cross-site"}, {})
    assert refused is not None
    assert refused[0] == 403


@pytest.mark.parametrize("left_out", ["origin", "x-barnabas"])
def test_a_change_needs_the_pages_own_origin_and_header(left_out: str) -> None:
    assert HERE.refuses("POST", OF_PAGE, {}) is None
    refused = HERE.refuses("POST", {name: value for name, value in OF_PAGE.items() if name != left_out}, {})
    assert refused is not None
    assert refused[0] == 403


def test_other_methods_are_refused() -> None:
    refused = HERE.refuses("DELETE", OF_PAGE, {})
    assert refused is not None
    assert refused[0] == 405


def test_from_another_machine_a_token_is_needed() -> None:
    for host in ("10.1.2.3:8095", "kafka.example:8095"):
        refused = ANYWHERE.refuses("GET", {"host": host}, {})
        assert refused is not None
        assert refused[0] == 401
        assert ANYWHERE.refuses("GET", {"host": host}, {cookie_name(host): "secret"}) is None
        assert ANYWHERE.refuses("GET", {"host": host, "authorization": "Bearer secret"}, {}) is None
        assert ANYWHERE.refuses("GET", {"host": host, "authorization": "Bearer secre"}, {}) is not None
        assert ANYWHERE.refuses("GET", {"host": host}, {cookie_name(host): "sécret"}) is not None
    other = {cookie_name("10.1.2.3:8096"): "secret"}
    assert ANYWHERE.refuses("GET", {"host": "10.1.2.3:8095"}, other) is not None
    refused = ANYWHERE.refuses("GET", {"host": "evil.example"}, {cookie_name("evil.example"): "secret"})
    assert refused is not None
    assert refused[0] == 421


@ON_OURS_ALONE
def test_every_answer_has_the_headers_that_keep_scripts_of_others_out(console: Asking) -> None:
    for path, status in (("/", 200), ("/api/about", 200), ("/nowhere", 404), ("/../app.py", 404)):
        answer = console.get(path)
        assert answer.status == status
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert console.get("/api/about", host="evil.example").status == 421
    assert console.get("/api/about", origin="http://evil.example").status == 403


@ON_OURS_ALONE
def test_a_change_without_the_pages_header_or_with_too_much_is_refused(console: Asking) -> None:
    assert console.request("POST", "/api/reset", b"{}").status == 403
    assert console.request("POST", "/api/reset", b"{}", origin=console.address).status == 403
    assert console.post("reset", ["no object"]).status == 400
    assert console.post("reset", {"group": "x" * 70_000}).status == 400
    assert console.post("reset", {"nothing": 1}).status == 400
    deep = console.request("POST", "/api/reset", b"[" * 60_000, origin=console.address, x_barnabas="1")
    assert deep.status == 400
    assert console.get("/api/reset").status == 404


@ON_OURS_ALONE
@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("topic", "topic must be given, as a text"),
        ("broker?node=x", "node must be given, as a number from 0 to 2147483647"),
        ("ribbon?topic=t", "partition must be given, as a number from 0 to 2147483647"),
        ("ribbon?topic=t&partition=2147483648", "partition must be given"),
        ("records?topic=t&partition=0&from=99999999999999999999", "from 99999999999999999999: it takes"),
        ("batch?topic=t&partition=0&offset=-1", "offset must be given"),
        (f"group?group={'g' * 10_001}", "group is too long"),
    ],
)
def test_a_nonsense_question_is_answered_with_the_expected_form(
    console: Asking, question: str, said: str
) -> None:
    answer = console.get(f"/api/{question}")
    assert answer.status == 400
    assert json.loads(answer.body)["error"].startswith(said)


@ON_OURS_ALONE
def test_a_nonsense_change_is_answered_with_the_expected_form(console: Asking) -> None:
    for verb, body, said in (
        ("abort", {"id": 7}, "id must be given, as a text"),
        ("abort", {"topic": "t", "partition": True}, "partition must be given"),
        ("abort", {"topic": "t", "partition": 0}, "start_offset must be given"),
        ("reset", {"group": "g", "to": "earliest", "topics": "t"}, "topics must be a list"),
        ("reset", {"group": "g", "to": "nowhere"}, "--to nowhere: "),
        ("delete-records", {"topic": "\ud800", "partition": 0}, "topic is too long, or isn't valid text"),
        ("delete-records", {"topic": "t", "partition": 0, "before": "x"}, "before must be given"),
    ):
        answer = console.post(verb, body)
        assert (answer.status, json.loads(answer.body)["error"][: len(said)]) == (400, said), body


@pytest.mark.parametrize(
    "fault", [KeyError("records"), TypeError("no"), ValueError("no"), AttributeError("no")]
)
async def test_a_fault_of_the_consoles_own_is_no_wrong_question_and_is_in_its_log(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(_: object) -> None:
        raise fault

    answer = await _answered(ask, {})
    assert answer.status_code == 500
    assert f"the console failed: {fault!r}" in json.loads(bytes(answer.body))["error"]
    [logged] = caplog.records
    assert logged.levelname == "ERROR"
    assert logged.exc_info is not None
    assert logged.exc_info[1] is fault


def test_a_console_for_other_machines_prints_its_token_and_requires_it() -> None:
    with console_of("console", "--bootstrap", "127.0.0.1:1", host="0.0.0.0") as console:
        token = console.url.partition("token=")[2]
        assert len(token) >= 24
        assert console.get("/").status == 401
        assert console.get("/api/about").status == 401
        assert console.get("/?token=wrong").status == 401
        answer = console.get(f"/?token={token}")
        assert (answer.status, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert console.get("/", cookie=cookie.partition(";")[0]).status == 200
        assert console.get("/api/about", authorization=f"Bearer {token}").status == 200


def test_the_token_may_be_given() -> None:
    with console_of(
        "console", "--bootstrap", "127.0.0.1:1", host="0.0.0.0", BARNABAS_CONSOLE_TOKEN="chosen"
    ) as console:
        assert console.url.endswith("?token=chosen")
        assert console.get("/api/about", authorization="Bearer chosen").status == 200
