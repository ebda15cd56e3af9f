"""What a request is answered that fails as a whole: as Kafka's own classes answer it, whatever the request is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.faults.error_answers import error_answer
from protocol.apis import APIS
from protocol.errors import Error
from protocol.wire.codec import decode
from tests.golden.json_form import to_json
from tests.golden.test_messages import vectors

ERRORS = {
    "Fetch": Error.INVALID_FETCH_SESSION_EPOCH,
    "ShareFetch": Error.INVALID_SHARE_SESSION_EPOCH,
    "ShareAcknowledge": Error.INVALID_SHARE_SESSION_EPOCH,
}
"""Where it depends on the error in which place it stands, one that stands where Kafka's classes put all of them."""
OTHERS = Error.NOT_COORDINATOR

DIFFERENT = {
    "AlterClientQuotas": "Kafka repeats whose quotas they are",
    "AlterReplicaLogDirs": "what is asked is by directory, and the answer by topic",
    "AlterUserScramCredentials": "Kafka names each user once",
    "CreateDelegationToken": "Kafka names ANONYMOUS as the owner",
    "DescribeClientQuotas": "Kafka's list of entries is null",
    "DescribeLogDirs": "before version 3 Kafka's answer has no error",
    "DescribeUserScramCredentials": "Kafka has an entry without a name for each user",
    "Fetch": "before version 13 Kafka has the error at the partitions, too",
    "JoinGroup": "Kafka has null for the protocol's name",
    "ListPartitionReassignments": "Kafka repeats which partitions were asked for",
}


def without_texts(answer: Any) -> Any:
    """Ours says which fault it was, Kafka's its own text or nothing."""
    if isinstance(answer, dict):
        return {name: without_texts(value) for name, value in answer.items() if name != "errorMessage"}
    return [without_texts(each) for each in answer] if isinstance(answer, list) else answer


def test_errors_are_where_kafka_puts_them(
    needs_kafka: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path(__file__).parent / "java" / "ErrorAnswers.java"
    compiled = ["javac", "-cp", needs_kafka("classpath").strip(), "-d", tmp_path, program]
    subprocess.run(compiled, check=True, timeout=120)
    monkeypatch.setitem(os.environ, "KAFKA_CP", str(tmp_path))
    asked = [
        (api, vector["version"], vector["hex"])
        for api in APIS.values()
        for vector in vectors().get(api.request.__name__, ())
        if api.min_version <= vector["version"] <= api.max_version
    ]
    lines = [
        f"{api.key}\t{version}\t{int(ERRORS.get(api.name, OTHERS))}\t{body}" for api, version, body in asked
    ]
    kafkas = needs_kafka("class", "ErrorAnswers", stdin="\n".join([*lines, ""])).splitlines()
    differ: dict[str, str] = {}
    compared = 0
    for (api, version, body), theirs in zip(asked, kafkas, strict=True):
        if theirs.startswith("!"):  # a request that Kafka's class doesn't take
            continue
        request = decode(api.request, version, bytes.fromhex(body))
        ours = error_answer(api.key, version, request, ERRORS.get(api.name, OTHERS))
        found = None if ours is None else without_texts(to_json(ours, version))
        wanted = None
        if theirs != "null":
            response = decode(api.response, version, bytes.fromhex(theirs))
            wanted = without_texts(to_json(response, version))
        compared += 1
        if found != wanted:
            differ[api.name] = f"{api.name} v{version}: Kafka {wanted}, ours {found}"
    assert compared > 800
    assert differ.keys() == DIFFERENT.keys(), "\n".join(
        differ[name] for name in differ.keys() - DIFFERENT.keys()
    )
