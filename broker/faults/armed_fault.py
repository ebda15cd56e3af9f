"""The definition of a fault: its place, what happens there, to which requests, and when.

{"api": "EndTxn", "do": "drop", "at": "answer", "transactional_id": "payer", "nth": 2}
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from broker.faults.possible_errors import can_give, possible_errors
from protocol.apis import APIS
from protocol.errors import Error
from storage.files import OPERATIONS

if TYPE_CHECKING:
    from broker.faults.subjects import Subject
    from protocol.waiting import Later

_MOST_DELAY_MS = 3_600_000
_MOST_BLOCKING_MS = 10_000
"""The longest delay of an operation on files: it blocks its thread, and if that is the loop, everything waits."""


class FaultError(Exception):
    """The fault can't be armed. The message says why, in one line."""


class FaultPoint(Enum):
    """The place of a fault."""

    REQUEST = "request"  # before a request's work
    ANSWER = "answer"  # after its work, before the answer is sent
    PREPARE = "prepare"  # before PrepareCommit or PrepareAbort is written
    PREPARED = "prepared"  # after it is committed, before the client's answer and before any marker
    MARKER = "marker"  # before a transaction's marker is written to a partition
    MARKED = "marked"  # after it is written, before the transaction's coordinator gets the answer
    COMPLETE = "complete"  # after all markers, before CompleteCommit or CompleteAbort is written
    COMPLETED = "completed"  # after it is committed
    LOAD = "load"  # before a coordinator loads a partition that this broker now leads
    REBALANCE = (
        "rebalance"  # after all members have joined, or the wait for them is over; before the next generation
    )
    FILE = "file"  # before an operation on a file


class Do(Enum):
    """What happens there."""

    ERROR = "error"  # before the work: this error instead of it; after it: this error whatever its result
    DELAY = "delay"
    HOLD = "hold"  # until it is released
    DROP = "drop"  # there is no answer; before the work, the work isn't done either
    CLOSE = "close"  # close the connection before the answer
    CUT = "cut"  # close the connection in the middle of the answer
    TWICE = "twice"  # before the work: do it twice; after it: answer twice
    LATE = "late"  # answer after later requests of the client, after a delay or once it is released
    STALE = "stale"  # give the answer that the same request got the first time
    THROTTLE = (
        "throttle"  # say so in the answer, and serve nothing more of the connection for so long (KIP-219)
    )
    VERSIONS = "versions"  # list fewer in the answer to ApiVersions
    CORRUPT = "corrupt"  # flip a byte of the records
    FLIP = "flip"  # flip a byte of the file, on the disk
    PAUSE = "pause"  # stop the broker, as by SIGSTOP
    CRASH = "crash"  # kill the broker, as by kill -9


_ANYWHERE = frozenset((Do.DELAY, Do.HOLD, Do.PAUSE, Do.CRASH))

DONE_AT: Final[Mapping[FaultPoint, frozenset[Do]]] = {
    FaultPoint.REQUEST: _ANYWHERE | {Do.ERROR, Do.DROP, Do.CLOSE, Do.TWICE, Do.CORRUPT},
    FaultPoint.ANSWER: _ANYWHERE
    | {
        Do.ERROR,
        Do.DROP,
        Do.CLOSE,
        Do.CUT,
        Do.TWICE,
        Do.LATE,
        Do.STALE,
        Do.THROTTLE,
        Do.VERSIONS,
        Do.CORRUPT,
    },
    FaultPoint.PREPARE: _ANYWHERE | {Do.ERROR},
    FaultPoint.PREPARED: _ANYWHERE,
    FaultPoint.MARKER: _ANYWHERE | {Do.ERROR, Do.DROP},
    FaultPoint.MARKED: _ANYWHERE | {Do.ERROR, Do.DROP},
    FaultPoint.COMPLETE: _ANYWHERE | {Do.ERROR},
    FaultPoint.COMPLETED: _ANYWHERE,
    FaultPoint.LOAD: _ANYWHERE,
    FaultPoint.REBALANCE: _ANYWHERE,
    FaultPoint.FILE: (_ANYWHERE | {Do.ERROR, Do.FLIP}) - {Do.HOLD},
}
"""What can happen at each place."""

OF_REQUESTS = frozenset((FaultPoint.REQUEST, FaultPoint.ANSWER))
OF_MARKERS = frozenset((FaultPoint.MARKER, FaultPoint.MARKED))

_PLACE_OF: Final = dict.fromkeys((Do.CUT, Do.LATE, Do.STALE, Do.THROTTLE, Do.VERSIONS), FaultPoint.ANSWER) | {
    Do.FLIP: FaultPoint.FILE
}
"""The place of actions that have only one; it needn't be given."""

_FOR_ALL = frozenset((Do.STALE, Do.VERSIONS))
"""Actions that fire each time, unless `times` is given."""

_WITH_RECORDS = ("Produce", "Fetch")

ERRNOS: Final[Mapping[str, int]] = {
    name: getattr(errno, name) for name in ("EIO", "ENOSPC", "EROFS", "EACCES", "EMFILE", "EDQUOT")
}
"""The errors with which an operation on a file may fail."""


class ArmedFault:
    """An armed fault. `seen`: how many requests or steps it has matched; `fired`: on how many of these it was carried
    out; `standing`: those that it holds."""

    def __init__(self, number: int, said: Mapping[str, Any]) -> None:
        """Raises FaultError."""
        self.number = number
        left = dict(said)
        apis = left.pop("api", None)
        self.apis = None if apis is None else _apis(apis)
        self.do: Do = _one_of(Do, left.pop("do", None), "do")
        at = left.pop("at", None)
        if at is None or (at == FaultPoint.REQUEST.value and self.do in _PLACE_OF):
            at = _PLACE_OF.get(self.do, FaultPoint.REQUEST).value
        self.at: FaultPoint = _one_of(FaultPoint, at, "at")
        self._check_place()
        self.error, self.errno = Error.NONE, 0
        if self.do is Do.ERROR and self.at is FaultPoint.FILE:
            self.errno = _errno(left.pop("error", None))
        elif self.do is Do.ERROR:
            self.error = _error(left.pop("error", None))
            self._check_error()
        self.message = _text(left, "message") if self.do is Do.ERROR else None
        self.delay_ms = self._delay_ms(left)
        self.versions = _versions(left.pop("versions", None)) if self.do is Do.VERSIONS else {}
        self._operations = _operations(left, self.at)
        self._file = _text(left, "file") if self.at is FaultPoint.FILE else None
        self._of_sender = {name: _text(left, name) for name in ("client_id", "principal") if name in left}
        self._named = {
            name: _text(left, name) for name in ("group", "topic", "transactional_id") if name in left
        }
        self._partition = _number(left, "partition", 0, 2**31) if "partition" in left else None
        self._fields = _fields(left.pop("fields", {}))
        self._nth = _number(left, "nth", 1, 2**31, 1)
        times = left.pop("times", None if self.do in _FOR_ALL else 1)
        self._times = None if times is None else _number({"times": times}, "times", 1, 2**31)
        self._probability = _share(left.pop("probability", 1.0))
        self._seed = _number(left, "seed", 0, 2**63, 0)
        if left:
            raise FaultError(f"a fault has no {', '.join(map(str, left))} here; it has {', '.join(_KNOWN)}")
        if self._partition is not None and "topic" not in self._named:
            raise FaultError("partition=... needs topic=...")
        self.seen = self.fired = 0
        self.standing: list[Later[None]] = []
        self.answered: dict[bytes, Any] = {}
        """The first answer to each request."""

    def _check_place(self) -> None:
        if self.do not in DONE_AT[self.at]:
            places = ", ".join(point.value for point, done in DONE_AT.items() if self.do in done)
            raise FaultError(
                f"do={self.do.value!r} isn't for at={self.at.value!r}, but for {places}; "
                f"at={self.at.value!r} takes {', '.join(sorted(do.value for do in DONE_AT[self.at]))}"
            )
        if self.at not in OF_REQUESTS and self.apis is not None:
            raise FaultError(f"at={self.at.value!r} is inside the broker, and takes no api")
        if self.do is Do.VERSIONS:
            self.apis = _apis("ApiVersions")
        if self.do is Do.CORRUPT:
            with_records = _apis(_WITH_RECORDS[0] if self.at is FaultPoint.REQUEST else _WITH_RECORDS[1])
            self.apis = with_records if self.apis is None else self.apis
            if not self.apis <= with_records:
                raise FaultError(f"only a request of {' and an answer to '.join(_WITH_RECORDS)} have records")
        if self.do is Do.THROTTLE and self.apis is not None:
            mute = [APIS[key].name for key in self.apis if not _can_say(key, "throttle_time_ms")]
            if mute:
                raise FaultError(f"an answer to {mute[0]} has no throttle time")

    def _check_error(self) -> None:
        for name in sorted(APIS[key].name for key in self.apis or ()):
            if not can_give(name, self.error):
                raise FaultError(
                    f"{name} can't give {self.error.name}; it can give {', '.join(possible_errors(name))}"
                )

    def _delay_ms(self, left: dict[str, Any]) -> int:
        if self.do in (Do.DELAY, Do.THROTTLE) or (self.do is Do.LATE and "delay_ms" in left):
            most_ms = _MOST_BLOCKING_MS if self.at is FaultPoint.FILE else _MOST_DELAY_MS
            return _number(left, "delay_ms", 0, most_ms)
        return 0

    @property
    def is_over(self) -> bool:
        """True if it won't fire any more."""
        return self._times is not None and self.fired >= self._times

    def fires(self, subject: Subject) -> bool:
        """True if it fires on this one. Counts the subject."""
        if self.is_over or not self.is_about(subject):
            return False
        self.seen += 1
        if self.seen < self._nth or _drawn(self._seed, self.seen) >= self._probability:
            return False
        self.fired += 1
        return True

    def is_about(self, subject: Subject) -> bool:
        """True if the subject matches the fault's conditions. The API isn't checked here."""
        if any(subject.sender(name) != wanted for name, wanted in self._of_sender.items()):
            return False
        if self._operations is not None and self._operations.isdisjoint(subject.values("operation")):
            return False
        if self._file is not None and not any(
            fnmatchcase(name, self._file) for name in subject.values("file")
        ):
            return False
        for kind, wanted in self._named.items():
            if kind == "topic":
                partitions = [index for name, index in subject.topics() if name == wanted]
                if not partitions or self._partition not in (None, *partitions):
                    return False
            elif wanted not in subject.ids(kind):
                return False
        return all(wanted in subject.values(path) for path, wanted in self._fields.items())

    def state(self) -> dict[str, int]:
        """The state, as JSON for the test."""
        return {
            "fault": self.number,
            "seen": self.seen,
            "fired": self.fired,
            "standing": len(self.standing),
        }


_KNOWN = (
    "api", "do", "at", "error", "message", "delay_ms", "versions", "client_id", "principal", "transactional_id",
    "group", "topic", "partition", "operation", "file", "fields", "nth", "times", "probability", "seed",
)  # fmt: skip


# --- Parsing the fields of a fault ----------------------------------------------------------------------------

_NAMES = {api.name.lower(): api for api in APIS.values()}


def _apis(said: Any) -> frozenset[int]:
    names = [said] if isinstance(said, str) else said
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise FaultError(f"api={said!r}: it has to be the name of an API, or several names")
    unknown = [name for name in names if name.lower() not in _NAMES]
    if unknown:
        raise FaultError(
            f"there is no API {unknown[0]}; there are {', '.join(sorted(a.name for a in APIS.values()))}"
        )
    return frozenset(_NAMES[name.lower()].key for name in names)


def _one_of(kind: type[Any], said: Any, name: str) -> Any:
    for each in kind:
        if each.value == said:
            return each
    raise FaultError(f"{name}={said!r}: it can be {', '.join(each.value for each in kind)}")


def _errno(said: Any) -> int:
    if said in ERRNOS:
        return ERRNOS[said]
    raise FaultError(f"error={said!r}: for a file it can be {', '.join(ERRNOS)}")


def _error(said: Any) -> Error:
    if isinstance(said, str) and said in Error.__members__ and said != "NONE":
        return Error[said]
    close = [name for name in Error.__members__ if isinstance(said, str) and said.upper() in name]
    hint = f"; is it {' or '.join(close[:3])}?" if close else ", such as NOT_COORDINATOR"
    raise FaultError(f"error={said!r}: it has to be Kafka's name of an error{hint}")


def _text(left: dict[str, Any], name: str) -> str | None:
    said = left.pop(name, None)
    if said is not None and not isinstance(said, str):
        raise FaultError(f"{name}={said!r}: it has to be a text")
    return said


def _number(left: dict[str, Any], name: str, least: int, most: int, default: int | None = None) -> int:
    said = left.pop(name, default)
    if isinstance(said, bool) or not isinstance(said, int) or not least <= said <= most:
        raise FaultError(f"{name}={said!r}: it has to be a number from {least} to {most}")
    return said


def _share(said: Any) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 < said <= 1:
        raise FaultError(f"probability={said!r}: it has to be above 0 and at most 1")
    return float(said)


def _drawn(seed: int, number: int) -> float:
    """A number from 0 to 1, always the same for the same seed and number."""
    digest = hashlib.sha256(f"{seed} {number}".encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56


def _fields(said: Any) -> dict[str, Any]:
    if not isinstance(said, Mapping) or not all(isinstance(path, str) for path in said):
        raise FaultError(f'fields={said!r}: it has to be values by field, such as {{"committed": true}}')
    return dict(said)


def _operations(left: dict[str, Any], at: FaultPoint) -> frozenset[str] | None:
    if at is not FaultPoint.FILE or "operation" not in left:
        return None
    said = left.pop("operation")
    names = [said] if isinstance(said, str) else said
    if not isinstance(names, Sequence) or not names or not {*names} <= {*OPERATIONS}:
        raise FaultError(f"operation={said!r}: it has to be one or more of {', '.join(sorted(OPERATIONS))}")
    return frozenset(names)


def _versions(said: Any) -> dict[int, tuple[int, int]]:
    if not isinstance(said, Mapping) or not said:
        raise FaultError('versions=...: it has to be [lowest, highest] by API, such as {"Fetch": [4, 12]}')
    found = {}
    for name, between in said.items():
        (key,) = _apis(name)
        if (
            not isinstance(between, Sequence)
            or len(between) != 2
            or not all(isinstance(v, int) for v in between)
        ):
            raise FaultError(f"versions of {name}: {between!r} isn't [lowest, highest]")
        found[key] = (int(between[0]), int(between[1]))
    return found


def _can_say(api_key: int, name: str) -> bool:
    return any(field.name == name for field in APIS[api_key].response.FIELDS)
