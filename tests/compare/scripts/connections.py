"""Malformed frames, headers and bodies, and what happens to their connection."""

from __future__ import annotations

import struct
from typing import Any

from protocol.apis import APIS
from tests.support.wire import Outcome, frame, tagged_fields, unsigned_varint

from ..batches import batch
from ..frames import API_KEYS, Client, body, connect, header
from ..play import SHORT_MS, SILENCE_S, Play, script, versions
from ..properties import LIMITED_HOST, LIMITED_HOST_CONNECTIONS, SOCKET_REQUEST_MAX_BYTES
from ..requests import fetch, metadata, produce


def good_requests(play: Play) -> dict[str, dict[str, Any]]:
    """Return one valid request of each API that is compared."""
    topic = play.topic("a")
    name = topic.name
    return {
        "ApiVersions": {"client_software_name": "a", "client_software_version": "b"},
        "Metadata": metadata(name),
        "Produce": produce((topic, 0, batch())),
        "Fetch": fetch((topic, 0, 0)),
        "ListOffsets": {"topics": [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
        "OffsetForLeaderEpoch": {
            "topics": [{"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]}]
        },
        "InitProducerId": {"transactional_id": None, "transaction_timeout_ms": 1},
        "CreateTopics": {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}]},
        "DeleteTopics": {"topics": [{"name": "nowhere"}], "topic_names": ["nowhere"], "timeout_ms": 1000},
        "CreatePartitions": {"topics": [{"name": name, "count": 1}], "timeout_ms": 1000},
        "DescribeCluster": {},
        "DescribeTopicPartitions": {"topics": [{"name": name}]},
    }


def api_versions(correlation_id: int = 5) -> bytes:
    return header(18, 0, correlation_id)


@script
def frames(play: Play) -> None:
    limit = SOCKET_REQUEST_MAX_BYTES
    for case, data in {
        "a size of -1, and no more than that": struct.pack(">i", -1),
        "the least size": struct.pack(">i", -(2**31)),
        "one byte more than may be, and no more than the size": struct.pack(">i", limit + 1),
        "the greatest size": struct.pack(">i", 2**31 - 1),
        "just as large as may be": frame(api_versions().ljust(limit, b"\0")),
        "one byte more than may be": frame(api_versions().ljust(limit + 1, b"\0")),
        "a size of 0": struct.pack(">i", 0),
        "TLS": bytes.fromhex("16030100c8010000c40303") + b"\x55" * 200,
        "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "zeros": b"\0" * 100,
        "ones": b"\xff" * 100,
    }.items():
        play.raw(case, data)


@script
def headers(play: Play) -> None:
    whole = header(18, 0, 5)
    for length in range(len(whole) + 1):
        play.raw_frame(f"the first {length} bytes of a header", whole[:length])
    flexible = header(18, 3, 5) + body(
        "ApiVersions", 3, {"client_software_name": "a", "client_software_version": "b"}
    )
    fixed = len(header(18, 3, 5)) - 1
    for case, payload in {
        "client id null": header(18, 0, 5, client_id=None),
        "client id of length -5": header(18, 0, 5, client_id=None, client_id_length=-5),
        "client id of the least length": header(18, 0, 5, client_id=None, client_id_length=-32768),
        "client id empty": header(18, 0, 5, client_id=""),
        "client id longer than the frame": header(18, 0, 5, client_id_length=100),
        "client id of bad UTF-8": header(18, 0, 5, client_id=b"\xff\xfe\x80"),
        "client id of 30000 bytes": header(18, 0, 5, client_id=b"x" * 30000),
        "correlation id -1": header(18, 0, -1),
        "the greatest correlation id": header(18, 0, 2**31 - 1),
    }.items():
        play.raw_frame(case, payload)
    for case, payload in {
        "a tag nobody knows": header(18, 3, 5, tags={99: b"abc"}) + flexible[fixed + 1 :],
        "two tags": header(18, 3, 5, tags={3: b"", 2**31 - 1: b"x" * 200}) + flexible[fixed + 1 :],
        "tags out of order": flexible[:fixed] + b"\x02\x05\x00\x03\x00" + flexible[fixed + 1 :],
        "a tag twice": flexible[:fixed] + b"\x02\x05\x00\x05\x00" + flexible[fixed + 1 :],
        "a tag longer than the frame": flexible[:fixed] + b"\x01\x05\x7f" + flexible[fixed + 1 :],
        "a tag as long as can be": flexible[:fixed] + b"\x01\x05\xff\xff\xff\xff\x0f" + flexible[fixed + 1 :],
        "more tags than there are": flexible[:fixed] + b"\x05" + flexible[fixed + 1 :],
        "as many tags as can be": flexible[:fixed] + b"\xff\xff\xff\xff\x0f" + flexible[fixed + 1 :],
        "a number of tags in six bytes": flexible[:fixed]
        + b"\x80\x80\x80\x80\x80\x00"
        + flexible[fixed + 1 :],
        "no tags at all": flexible[:fixed],
    }.items():
        play.raw_frame(case, payload, read_as=("ApiVersions", 3))


@script
def apis_and_versions(play: Play) -> None:
    """An API key or version that isn't served closes the connection."""
    for key in (-32768, -1, 4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 999, 32767):
        play.raw_frame(f"api key {key}", header(key, 0, 5) + b"\0" * 50)
    for name in good_requests(play):
        api = APIS[API_KEYS[name]]
        if name == "ApiVersions":
            continue
        for version in {-32768, -1, api.min_version - 1, api.max_version + 1, 32767}:
            play.raw_frame(f"{name} v{version}", header(api.key, version, 5) + b"\0" * 50)


@script
def bodies_cut_short(play: Play) -> None:
    """Send each API, in each version, without its last byte, and with extra bytes after it."""
    for name, fields in good_requests(play).items():
        for version in versions(name):
            start = header(API_KEYS[name], version, 5)
            whole = start + body(name, version, fields)
            if len(whole) > len(start):
                play.raw_frame(f"{name} v{version} cut short", whole[:-1])
                play.raw_frame(
                    f"{name} v{version} cut in the middle", whole[: (len(start) + len(whole)) // 2]
                )
            if name != "InitProducerId":  # each answer has its own producer id
                play.raw_frame(
                    f"{name} v{version} and bytes behind it", whole + b"\0\xff\0", read_as=(name, version)
                )
        play.raw_frame(f"{name} without a body", header(API_KEYS[name], versions(name)[-1], 5))


@script
def unknown_tagged_fields_in_bodies(play: Play) -> None:
    for name, fields in good_requests(play).items():
        for version in versions(name):
            if version < APIS[API_KEYS[name]].first_flexible:
                continue
            whole = header(API_KEYS[name], version, 5) + body(name, version, fields)
            assert whole.endswith(b"\0"), "a body without tagged fields ends with their number"
            if name != "InitProducerId":
                tagged = whole[:-1] + tagged_fields({50: b"x", 1000: b""})
                play.raw_frame(
                    f"{name} v{version} with unknown tagged fields", tagged, read_as=(name, version)
                )
            play.raw_frame(f"{name} v{version} with a tagged field too long", whole[:-1] + b"\x01\x32\x7f")


@script
def lengths_that_lie(play: Play) -> None:
    """Send wrong counts and lengths within bodies. Metadata v0-8 has an int32 count, v9+ a varint."""
    name = struct.pack(">h", 1) + b"a"
    for case, version, data in (
        ("a count of 2 with one element", 1, struct.pack(">i", 2) + name),
        ("a count of 1000 with one element", 1, struct.pack(">i", 1000) + name),
        ("the greatest count", 1, struct.pack(">i", 2**31 - 1) + name),
        ("a count of -1 is null", 1, struct.pack(">i", -1)),
        ("a count of -5 is null", 1, struct.pack(">i", -5)),
        ("the least count is null", 1, struct.pack(">i", -(2**31))),
        ("a count of -1 where null is not allowed", 0, struct.pack(">i", -1)),
        ("a string longer than the frame", 1, struct.pack(">ih", 1, 100) + b"a"),
        ("a string of length -1 that may not be null", 1, struct.pack(">ih", 1, -1)),
        ("a string of length -5 that may not be null", 1, struct.pack(">ih", 1, -5)),
        ("an empty string", 1, struct.pack(">ih", 1, 0)),
        ("bad UTF-8", 1, struct.pack(">ih", 1, 3) + b"\xff\xfea"),
        ("a surrogate in UTF-8", 1, struct.pack(">ih", 1, 3) + b"\xed\xa0\x80"),
        ("a zero in a string", 1, struct.pack(">ih", 1, 3) + b"a\0b"),
        ("a bool of 2", 4, struct.pack(">i", 0) + b"\x02"),
        ("a bool of -1", 4, struct.pack(">i", 0) + b"\xff"),
        ("a compact count of 0 is null", 9, b"\x00" + b"\x00\x00\x00" + b"\x00"),
        ("a compact count of 2 with one element", 9, b"\x03\x02a\x00" + b"\x00\x00\x00" + b"\x00"),
        ("the greatest compact count", 9, b"\xff\xff\xff\xff\x0f" + b"\x00" * 20),
        ("a compact count that is negative", 9, b"\xff\xff\xff\xff\x08" + b"\x00" * 20),
        ("a compact count in six bytes", 9, b"\x81\x80\x80\x80\x80\x00" + b"\x00" * 20),
        ("a compact string of length 0, null, that may not be", 9, b"\x02\x00\x00" + b"\x00\x00\x00\x00"),
        ("a compact string longer than the frame", 9, b"\x02\x7fa\x00" + b"\x00\x00\x00\x00"),
        ("the longest compact string", 9, b"\x02\xff\xff\xff\xff\x0fa\x00" + b"\x00\x00\x00\x00"),
        (
            "a compact string of 40000 bytes",
            9,
            b"\x02" + unsigned_varint(40001) + b"a" * 40000 + b"\0" + b"\x00\x00\x00\x00",
        ),
        ("a number in more bytes than it needs", 9, b"\x82\x00\x02a\x00" + b"\x00\x00\x00\x00"),
    ):
        if "null" in case and "not" not in case:
            # Other scripts' topics are listed too, so only the fact that an answer comes can be compared.
            payload = frame(header(3, version, 5) + data)
            client = play.client("all")
            client.send_bytes(payload)
            came = client.receive_frame()
            play.note(case, came.value if isinstance(came, Outcome) else "an answer")
            continue
        play.raw_frame(case, header(3, version, 5) + data, read_as=("Metadata", version))
    topic = play.topic("a")
    name = struct.pack(">h", len(topic.name)) + topic.name.encode()
    for case, length in {
        "beyond the frame": 10_000,
        "the greatest": 2**31 - 1,
        "one too many": len(batch()) + 1,
        "-2": -2,
    }.items():
        payload = (
            struct.pack(">hhi", -1, -1, 1000)
            + struct.pack(">i", 1)
            + name
            + struct.pack(">iii", 1, 0, length)
            + batch()
        )
        if length >= 0:
            play.raw_frame(f"records of a length {case}", header(0, 8, 5) + payload, read_as=("Produce", 8))
    payload = struct.pack(">hhi", -1, -1, 1000) + struct.pack(">i", -1)
    play.raw_frame("Produce with null topics", header(0, 8, 5) + payload)
    payload = struct.pack(">hhi", -1, -1, 1000) + struct.pack(">i", 1) + name + struct.pack(">i", -1)
    play.raw_frame("Produce with null partitions", header(0, 8, 5) + payload)


@script
def answers_come_in_order(play: Play) -> None:
    topic = play.topic("a")
    client = play.client("main")
    asked = metadata(topic.name)
    sent = [
        client.prepare("Metadata", 9, asked),
        client.prepare("Produce", 9, produce((topic, 0, batch()))),
        client.prepare("Produce", 9, produce((topic, 0, batch()), acks=0)),
        client.prepare("Fetch", 12, fetch((topic, 0, 0))),
        client.prepare("Fetch", 12, fetch((topic, 0, 2), min_bytes=1, max_wait_ms=SHORT_MS)),
        client.prepare("Metadata", 1, asked),
        client.prepare("Produce", 9, produce((topic, 0, batch()))),
        client.prepare("Fetch", 12, fetch((topic, 0, 2))),
    ]
    client.send_bytes(b"".join(data for _, data in sent))
    got = []
    for request, _ in sent[:2] + sent[3:]:
        answer = client.receive(request)
        got.append(answer.value if isinstance(answer, Outcome) else answer.correlation_id)
    play.note("eight requests in one write, answered in order, the one of acks=0 not at all", got)
    many = [client.prepare("ApiVersions", 0, {}) for _ in range(200)]
    client.send_bytes(b"".join(data for _, data in many))
    right = 0
    for request, _ in many:
        answer = client.receive(request)
        right += not isinstance(answer, Outcome) and answer.correlation_id == request.correlation_id
    play.note("200 requests in one write", right)
    twice = [client.prepare("ApiVersions", 0, {}, correlation_id=7) for _ in range(3)]
    client.send_bytes(b"".join(data for _, data in twice))
    right = 0
    for request, _ in twice:
        answer = client.receive(request)
        right += not isinstance(answer, Outcome) and answer.correlation_id == 7
    play.note("three requests of one correlation id", right)


@script
def requests_in_pieces(play: Play) -> None:
    client = play.client("main")
    sent, data = client.prepare("Metadata", 9, metadata("nowhere"))
    for i in range(len(data)):
        client.send_bytes(data[i : i + 1])
    answer = client.receive(sent)
    play.note("byte by byte", "an answer" if not isinstance(answer, Outcome) else answer.value)
    first, first_data = client.prepare("ApiVersions", 0, {})
    second, second_data = client.prepare("ApiVersions", 1, {})
    both = first_data + second_data
    client.send_bytes(both[:-5])
    answer = client.receive(first)
    play.note(
        "one and a half: the first is answered",
        "an answer" if not isinstance(answer, Outcome) else answer.value,
    )
    silence = client.receive_frame(within_s=SILENCE_S / 2)
    play.note(
        "one and a half: the half is waited for",
        silence.value if isinstance(silence, Outcome) else "an answer",
    )
    client.send_bytes(both[-5:])
    answer = client.receive(second)
    play.note("one and a half: the rest", "an answer" if not isinstance(answer, Outcome) else answer.value)


@script
def a_bad_request_behind_good_ones(play: Play) -> None:
    """The good requests before it are answered. The requests after it are never read."""
    topic = play.topic("a")
    for case, bad in {
        "an unknown api": frame(header(999, 0, 5)),
        "a negative size": struct.pack(">i", -1),
        "a body cut short": frame(header(3, 9, 5) + b"\x05"),
    }.items():
        client = connect(play.broker.port)
        first, first_data = client.prepare("Metadata", 9, metadata("nowhere"))
        second, second_data = client.prepare("ApiVersions", 0, {})
        _, behind = client.prepare("Produce", 9, produce((topic, 0, batch())))
        client.send_bytes(first_data + second_data + bad + behind)
        got = []
        for request in (first, second, second):
            answer = client.receive(request)
            got.append(answer.value if isinstance(answer, Outcome) else answer.correlation_id)
        play.note(case, got)
        client.close()
    play.ask("nothing was written", "Fetch", 12, fetch((topic, 0, 0)))


@script
def one_bad_connection_does_not_touch_others(play: Play) -> None:
    play.ask("before", "Metadata", 9, metadata("nowhere"), on="good")
    half = connect(play.broker.port)
    half.send_bytes(frame(api_versions())[:-2])
    play.raw("garbage on another one", b"\xff" * 50)
    play.raw_frame("an unknown api on a third", header(999, 0, 5))
    play.ask("after", "Metadata", 9, metadata("nowhere"), on="good")
    half.send_bytes(frame(api_versions())[-2:])
    answer = half.receive_frame()
    play.note("the half request is finished", answer.value if isinstance(answer, Outcome) else "an answer")
    half.close()


@script
def half_closed(play: Play) -> None:
    """The client shuts down its sending side, and still reads."""
    topic = play.topic("a")
    for case, api, version, fields in (
        ("behind a request", "Metadata", 9, metadata("nowhere")),
        ("behind a Produce", "Produce", 9, produce((topic, 0, batch()))),
    ):
        client = connect(play.broker.port)
        sent = client.say(api, version, fields)
        client.finish_sending()
        answer = client.receive(sent)
        play.note(case, answer.value if isinstance(answer, Outcome) else "an answer")
        play.note(f"{case}: and then", _end_of(client))
    client = connect(play.broker.port)
    client.send_bytes(frame(api_versions())[:-1])
    client.finish_sending()
    play.note("within a request", _end_of(client))
    client = connect(play.broker.port)
    client.finish_sending()
    play.note("before any request", _end_of(client))


def _end_of(client: Client) -> str:
    end = client.receive_frame()
    client.close()
    return end.value if isinstance(end, Outcome) else "an answer"


@script
def too_many_of_one_host(play: Play) -> None:
    """max.connections.per.ip: TCP accepts one more connection, and the broker closes it at once. The others stay."""
    asked = ("ApiVersions", 0, {})
    kept = []
    for i in range(LIMITED_HOST_CONNECTIONS):
        client = connect(play.broker.port, from_host=LIMITED_HOST)
        answer = client.receive(client.say(*asked))
        play.note(f"connection {i}", answer.value if isinstance(answer, Outcome) else "an answer")
        kept.append(client)
    for i in range(2):
        client = connect(play.broker.port, from_host=LIMITED_HOST)
        play.note(f"one more, {i}", _end_of(client))
    for i, client in enumerate(kept):
        answer = client.receive(client.say(*asked))
        play.note(f"connection {i} lives on", answer.value if isinstance(answer, Outcome) else "an answer")
    kept.pop().close()

    def room() -> bool:
        client = connect(play.broker.port, from_host=LIMITED_HOST)
        answer = client.receive(client.say(*asked))
        client.close()
        return not isinstance(answer, Outcome)

    play.until("a place is free again", room)
    for client in kept:
        client.close()


@script(needs=("SaslHandshake", "SaslAuthenticate"))
def sasl_on_a_plain_listener(play: Play) -> None:
    for version in versions("SaslHandshake"):
        play.ask(f"a handshake (v{version})", "SaslHandshake", version, {"mechanism": "PLAIN"})
    for version in versions("SaslAuthenticate"):
        play.ask(f"an authentication (v{version})", "SaslAuthenticate", version, {"auth_bytes": b"\0a\0b"})
    play.ask("the connection is served on", "ApiVersions", 0, {})
