"""The journal of a broker's requests, as a test reads it: `broker.journal(api="EndTxn")`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.child import Asked, OfNodes, QuestionRefusedError, said

SIZE_SETTING = "barnabas.journal.size"

Request = Mapping[str, Any]
"""One of the journal: `n`, `at_ms`, `took_ms` (None where it isn't answered yet), `connection`, `client_id`,
`principal`, `api`, `version`, what it names (`transactional_ids`, `groups`, `topics`, `batches`, `offsets`), the fields
of `request` and `answer`, `errors` by name, and an `outcome` where there was no answer."""


class WithJournal(OfNodes):
    """What a broker and a cluster have in common for who asks what they were asked."""

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
        """The requests that it was asked since it was started, the oldest first: those that are kept, as many as the
        setting `barnabas.journal.size` says. What the arguments say is as `fault(...)` takes it. `after`: those alone
        whose number, at their node, is higher.

        Raises ValueError for what there is not, and where no journal is kept.
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
    """Of one node, behind the number `after`. Raises ValueError."""
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
    """JSON, one a line."""
    return "".join(json.dumps(each) + "\n" for each in requests)
