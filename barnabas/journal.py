"""The journal of a broker's requests, as a test reads it: `broker.journal(api="EndTxn")`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.child import Asked, OfNodes, QuestionRefusedError, said

SIZE_SETTING = "barnabas.journal.size"

Request = Mapping[str, Any]
"""A request in the journal: `n`, `at_ms`, `took_ms` (None if it isn't answered yet), `connection`, `client_id`,
`principal`, `api`, `version`, what it names (`transactional_ids`, `groups`, `topics`, `batches`, `offsets`), the fields
of `request` and `answer`, `errors` by name, and an `outcome` if there was no answer."""


class WithJournal(OfNodes):
    """The journal of a broker and a cluster."""

    def journal(
        self,
        api: str | Sequence[str] | None = None,
        *,
        client_id: str | None = None,
        principal: str | None = None,
        transactional_id: str | None = None,
        group: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        fields: Mapping[str, Any] | None = None,
        after: int = 0,
    ) -> list[Request]:
        """The requests since its start, the oldest first. It keeps as many as the setting `barnabas.journal.size` says.
        The arguments choose requests as those of `fault(...)` do. `after`: only requests with a higher number, counted
        at each node.

        Raises ValueError for an unknown name, and if no journal is kept.
        """
        about = said(
            api=api,
            client_id=client_id,
            principal=principal,
            transactional_id=transactional_id,
            group=group,
            topic=topic,
            partition=partition,
            fields=fields,
        )
        found: list[Request] = []
        for name, node in self._named_nodes():
            found += ({"node": name, **each} if name else each for each in requests_of(node, about, after))
        return sorted(found, key=lambda each: (each["at_ms"], each["n"]))


def requests_of(node: Asked, about: Mapping[str, Any], after: int = 0) -> list[Request]:
    """Return one node's requests after the number `after`. Raises ValueError."""
    found: list[Request] = []
    following: int | None = after
    while following is not None:
        try:
            page = node.ask({"ask": "journal", "about": about, "after": following})
        except QuestionRefusedError as refusal:
            raise ValueError(str(refusal)) from None
        found += page["requests"]
        following = page["next"]
    return found


def lines(requests: Iterable[Request]) -> str:
    """Return the requests as JSON, one per line."""
    return "".join(json.dumps(each) + "\n" for each in requests)
