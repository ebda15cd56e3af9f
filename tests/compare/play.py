"""Scripts, and how one is played to a broker: requests go out raw, and the answers go into a transcript.

A script is a function of a `Play`. Each case has a sentence that says what it is about. A transcript is the list of
cases with their results, after masks. Two brokers agree on a script if their transcripts are equal.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol.apis import APIS
from tests.support.wire import Answer, Outcome, Sent, frame

from . import scripts as scripts_package
from .batches import OVERHEAD, digest
from .cluster_properties import CLUSTER, is_cluster, on_cluster
from .diff import Entry
from .frames import API_KEYS, Client
from .masking import masked
from .on_cluster import is_left_out
from .plain import plain
from .replica_records import replica_records
from .scene import Broker, Scene
from .waiting import ScriptStuck

SILENCE_S = 0.12
"""How long we listen if no answer is expected."""

LONG_MS = 30_000
"""The wait of a Fetch that is answered at once, or by an event."""

SHORT_MS = 150
"""The wait of a Fetch that runs to its end."""

REPLICAS = "what all replicas have"
"""The last case of each script for a cluster."""

ON_CLUSTER = "on_cluster"
"""The beginning of the keys of scripts for a single broker that are played to a cluster."""

STUCK = "the script could not go on"

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Script:
    family: str
    title: str
    run: Callable[[Play], None]
    properties: str
    needs: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.family}/{self.title}"

    @property
    def key(self) -> str:
        """The key of its recording. A script for a single broker may also be played to a cluster."""
        return f"{ON_CLUSTER}/{self.name}" if self.is_for_one_on_cluster else self.name

    @property
    def prefix(self) -> str:
        """The beginning of the names of its topics, groups and transactional ids. No other script uses it."""
        return f"{self.family}-{self.title}-".replace("_", "-")

    @property
    def is_for_one_on_cluster(self) -> bool:
        """True if it is a script for a single broker that is played to a cluster."""
        return is_cluster(self.properties) and self.properties != CLUSTER

    def on_cluster(self) -> Script:
        """Return the same script for a cluster."""
        return replace(self, properties=on_cluster(self.properties))

    def served_by(self, api_keys: Collection[int]) -> bool:
        """Return True if the script needs only these APIs beside those that are always compared."""
        return all(API_KEYS[api] in api_keys for api in self.needs)


SCRIPTS: dict[str, Script] = {}


def script(
    run: Callable[[Play], None] | None = None, *, properties: str = "plain", needs: tuple[str, ...] = ()
) -> Any:
    """Register a script for brokers that are started from `properties`.

    It is left out until barnabas serves the APIs in `needs`, beside those that are compared anyway.
    """

    def register(run: Callable[[Play], None]) -> Callable[[Play], None]:
        family = run.__module__.rsplit(".", 1)[-1]
        found = Script(family, run.__name__, run, properties, needs)
        SCRIPTS[found.key] = found
        return run

    return register if run is None else register(run)


def load_scripts() -> dict[str, Script]:
    for module in pkgutil.iter_modules(scripts_package.__path__):
        importlib.import_module(f"{scripts_package.__name__}.{module.name}")
    for script in [*SCRIPTS.values()]:
        if not is_cluster(script.properties) and not is_left_out(script.name):
            SCRIPTS[script.on_cluster().key] = script.on_cluster()
    return SCRIPTS


@dataclass(frozen=True, slots=True)
class Pending:
    """A case whose answer is still to come."""

    case: str
    sent: Sent
    client: Client
    on: str
    max_wait_ms: int


class Play(Scene):
    """One script played to one broker: its requests, and the transcript of the results."""

    def __init__(self, broker: Broker, script: Script) -> None:
        super().__init__(broker, script.prefix)
        self.script = script
        self.transcript: list[Entry] = []
        self._cases: set[str] = set()

    # --- asking ------------------------------------------------------------------------------------------------

    def ask(
        self,
        case: str,
        api: str,
        version: int,
        fields: Fields,
        *,
        on: str = "main",
        within_s: float | None = None,
        **how: Any,
    ) -> Any:
        """Send one request, and record the result. Return the decoded answer, or None."""
        pending = self.send(case, api, version, fields, on=on, **how)
        answer = self.receive(pending, within_s=within_s)
        self._let_replicas_follow(api, fields)
        return answer

    def send(
        self, case: str, api: str, version: int, fields: Fields, *, on: str = "main", **how: Any
    ) -> Pending:
        """Send a request whose answer is received later."""
        client = self.client(on)
        if api == "Produce":
            self._remember_payloads(fields)
        sent = client.say(api, version, fields, **how)
        return Pending(case, sent, client, on, fields.get("max_wait_ms", 0) if api == "Fetch" else 0)

    def greet(self, on: str) -> None:
        """Make sure that the connection is served: the broker answers a request that leaves no trace in the
        transcript."""
        client = self.client(on)
        client.receive(client.say("ApiVersions", 0, {}))

    def receive(self, pending: Pending, *, within_s: float | None = None) -> Any:
        """Record the result of a request that was sent before."""
        sent = pending.sent
        entry: Entry = {"case": pending.case, "request": f"{APIS[sent.api_key].name} v{sent.version}"}
        answer = pending.client.receive(sent, within_s=within_s)
        if isinstance(answer, Outcome):
            self._record(entry | {"outcome": answer.value})
            if answer is Outcome.SILENCE:
                self.drop(pending.on)  # a late answer must not be taken for that of the next request
            return None
        if pending.max_wait_ms >= 100:
            waited = answer.after_s * 1000 >= 0.9 * pending.max_wait_ms
            entry["when"] = "after the wait" if waited else "at once"
        self._record_answer(entry, sent, answer)
        return answer.message

    def ask_until(
        self,
        case: str,
        settled: Callable[[Any], bool],
        api: str,
        version: int,
        fields: Fields,
        *,
        on: str = "main",
    ) -> Any:
        """Repeat a request until its answer is worth comparing. Only that answer is in the transcript."""
        client = self.client(on)
        if api == "Produce":
            self._remember_payloads(fields)
        deadline_s = time.monotonic() + 15.0
        while True:
            sent = client.say(api, version, fields)
            answer = client.receive(sent)
            if isinstance(answer, Outcome) or settled(answer.message):
                break
            if time.monotonic() > deadline_s:
                raise ScriptStuck(f"{api} is never answered otherwise than to be asked again: {case}")
            time.sleep(0.002)
        entry: Entry = {"case": case, "request": f"{api} v{version}"}
        if isinstance(answer, Outcome):
            self._record(entry | {"outcome": answer.value})
            return None
        self._record_answer(entry, sent, answer)
        return answer.message

    def silent(self, case: str, api: str, version: int, fields: Fields, *, on: str = "main") -> None:
        """Send a request that may get no answer, and record whether one comes before that of an ApiVersions after it.

        This needs no waiting: answers leave in the order of their requests.
        """
        client = self.client(on)
        sent = client.say(api, version, fields)
        behind = client.say("ApiVersions", 0, {})
        entry: Entry = {"case": case, "request": f"{api} v{version}"}
        payload = client.receive_frame()
        self._let_replicas_follow(api, fields)
        if isinstance(payload, Outcome):
            self._record(entry | {"outcome": payload.value})
            return
        (correlation_id,) = struct.unpack_from(">i", payload)
        if correlation_id == behind.correlation_id:
            self._record(entry | {"outcome": "no answer, and the connection is served on"})
            return
        self._record(entry | {"outcome": f"an answer: {payload[4:].hex()}"})
        client.receive(behind)
        del sent

    def raw(
        self,
        case: str,
        data: bytes,
        *,
        read_as: tuple[str, int] = ("ApiVersions", 0),
        within_s: float | None = None,
        on: str | None = None,
    ) -> Any:
        """Send bytes unchanged, on a connection of their own unless `on` names one. An answer is read as `read_as`."""
        name = on or "raw"
        if on is None:
            self.drop(name)
        client = self.client(name)
        sent = Sent(API_KEYS[read_as[0]], read_as[1], correlation_id=0, at_s=time.monotonic())
        client.send_bytes(data)
        entry: Entry = {"case": case}
        answer = client.receive(sent, within_s=within_s)
        if on is None:
            self.drop(name)
        if isinstance(answer, Outcome):
            self._record(entry | {"outcome": answer.value})
            return None
        entry["correlation_id"] = answer.correlation_id
        self._record_answer(entry, sent, answer, correlation_id=answer.correlation_id)
        return answer.message

    def raw_frame(self, case: str, payload: bytes, **how: Any) -> Any:
        return self.raw(case, frame(payload), **how)

    def note(self, case: str, what: Any) -> None:
        """Record a finding of the script's own."""
        self._record({"case": case, "found": what})

    def compare_replicas(self) -> None:
        """Record what the replicas of the script's topics have, which must be the same."""
        found = replica_records(self.cluster, self.prefix)
        self._record({"case": REPLICAS, "found": masked("Replicas", found, self.names, self.script.name)})

    def _let_replicas_follow(self, api: str, fields: Fields) -> None:
        """With a single replica, what is answered before it is committed is seen at once. So wait for the replicas if
        no commit was asked for, or none was awaited."""
        if not self.script.is_for_one_on_cluster or api != "Produce":
            return
        if fields["acks"] != -1 or fields["timeout_ms"] <= 0:
            self.cluster.state.let_replicas_follow(topic["name"] for topic in fields["topic_data"])

    def _remember_payloads(self, fields: Fields) -> None:
        for topic in fields["topic_data"]:
            for partition in topic["partition_data"]:
                self.names.sent_payloads.add(digest((partition["records"] or b"")[OVERHEAD:]))

    # --- recording ---------------------------------------------------------------------------------------------

    def _record_answer(
        self, entry: Entry, sent: Sent, answer: Answer, correlation_id: int | None = None
    ) -> None:
        if answer.correlation_id != (sent.correlation_id if correlation_id is None else correlation_id):
            entry["correlation_id"] = f"{answer.correlation_id} in place of {sent.correlation_id}"
        if not answer.canonical:
            entry["canonical"] = False
        entry["answer"] = masked(
            APIS[sent.api_key].name, plain(answer.message, sent.version), self.names, self.script.name
        )
        self._record(entry)

    def _record(self, entry: Entry) -> None:
        case = entry["case"]
        if case in self._cases:
            raise AssertionError(f"{self.script.name} has two cases named {case!r}")
        self._cases.add(case)
        self.transcript.append(entry)


def play(script: Script, broker: Broker) -> list[Entry]:
    """Return the transcript of a script. If the script can't go on, its last entry says why."""
    playing = Play(broker, script)
    try:
        script.run(playing)
        if playing.on_cluster:
            playing.cluster.settle()
            playing.compare_replicas()
    except (ScriptStuck, AttributeError, IndexError, TypeError, OSError) as error:
        # A missing answer, or a missing part of it, shows as None or an empty list.
        playing.transcript.append({"case": STUCK, "found": f"{type(error).__name__}: {error}"})
        if playing.on_cluster:
            with contextlib.suppress(ScriptStuck):  # then the next script fails in the same way
                playing.cluster.settle()
    finally:
        playing.close()
    return playing.transcript


def versions(api: str) -> Sequence[int]:
    """Return all served versions of an API. Produce 0 to 2 are only listed."""
    found = APIS[API_KEYS[api]]
    return range(max(found.min_version, found.first_decodable), found.max_version + 1)
