"""The table of rights is complete: it has every served API, with answers that depend on the user."""

from __future__ import annotations

import json
from collections import defaultdict

from broker.handlers import HANDLERS
from protocol.apis import APIS

from . import recordings
from .principals import NOBODY, USERS

NOT_ASKED = {
    "ApiVersions": "whoever may connect may ask it",
    "SaslHandshake": "it is asked before anybody has signed in",
    "SaslAuthenticate": "it is asked before anybody has signed in",
    "CreateDelegationToken": "this broker has no secret for tokens",
    "RenewDelegationToken": "this broker has no secret for tokens",
    "ExpireDelegationToken": "this broker has no secret for tokens",
    "DescribeDelegationToken": "this broker has no secret for tokens",
}
FAMILIES = {
    "rights_admin": ("topics", "deleted_topics", "settings", "cluster"),
    "rights_data": ("topics_shown", "records"),
    "rights_groups": ("classic", "consumers", "shares", "streams"),
    "rights_transactions": ("transactions",),
}


def table() -> dict[str, dict[str, dict[str, str]]]:
    """Return the answers by API, row and user."""
    found: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for family, titles in FAMILIES.items():
        for title in titles:
            for entry in recordings.read(f"{family}/{title}") or ():
                row, _, user = entry["case"].rpartition(": ")
                if user in USERS:
                    api = entry["request"].partition(" ")[0]
                    found[api][f"{title}: {row}"][user] = json.dumps(entry["answer"])
    return found


def test_every_api_is_asked_by_every_user() -> None:
    found = table()
    assert {APIS[key].name for key in HANDLERS} - found.keys() == NOT_ASKED.keys()
    for rows in found.values():
        assert all(len(answers) == len(USERS) for answers in rows.values())


def test_every_api_refuses_somebody_something() -> None:
    allowed_to_all = {
        api
        for api, rows in table().items()
        if all(answers[user] == answers[NOBODY] for answers in rows.values() for user in USERS)
    }
    assert allowed_to_all == set()
