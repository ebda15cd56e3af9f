"""The answers of a Kafka without an authorizer, tokens and SASL, and SCRAM credentials, which need none of these."""

from __future__ import annotations

from typing import Any

from ..play import Play, script, versions

ANY, TOPIC, LITERAL, READ, ALLOW = 1, 2, 3, 3, 3


@script(needs=("DescribeAcls", "CreateAcls", "DeleteAcls"))
def acls(play: Play) -> None:
    acl: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": "a",
        "resource_pattern_type": LITERAL,
        "principal": "User:b",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    match: dict[str, Any] = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": LITERAL,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    for version in versions("DescribeAcls"):
        play.ask(f"described (v{version})", "DescribeAcls", version, match)
        for count in (0, 1, 2):
            play.ask(f"{count} created (v{version})", "CreateAcls", version, {"creations": [acl] * count})
            play.ask(f"{count} deleted (v{version})", "DeleteAcls", version, {"filters": [match] * count})


TOKENS = ("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken")


@script(needs=TOKENS)
def tokens(play: Play) -> None:
    renewers = [{"principal_type": "User", "principal_name": "b"}]
    for version in versions("CreateDelegationToken"):
        for owner in ((None, None), ("User", "c"), ("", ""), (None, "c"), ("User", None)):
            asked = {"max_lifetime_ms": -1, "renewers": renewers}
            if version >= 3:
                asked |= {"owner_principal_type": owner[0], "owner_principal_name": owner[1]}
            elif owner != (None, None):
                continue
            play.ask(f"created for {owner} (v{version})", "CreateDelegationToken", version, asked)
        play.ask(f"described (v{version})", "DescribeDelegationToken", version, {"owners": None})
        some = {"owners": [{"principal_type": "User", "principal_name": "b"}]}
        play.ask(f"one described (v{version})", "DescribeDelegationToken", version, some)
    for version in versions("RenewDelegationToken"):
        play.ask(
            f"renewed (v{version})", "RenewDelegationToken", version, {"hmac": b"h", "renew_period_ms": 1}
        )
        play.ask(
            f"expired (v{version})",
            "ExpireDelegationToken",
            version,
            {"hmac": b"h", "expiry_time_period_ms": 1},
        )


@script(needs=("SaslHandshake", "SaslAuthenticate"))
def sasl(play: Play) -> None:
    for version in versions("SaslHandshake"):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "", "NONE"):
            play.ask(
                f"handshake {mechanism} (v{version})", "SaslHandshake", version, {"mechanism": mechanism}
            )
    for version in versions("SaslAuthenticate"):
        play.ask(f"authenticate (v{version})", "SaslAuthenticate", version, {"auth_bytes": b"\0a\0b"})
    play.ask("the connection goes on", "ApiVersions", 0, {})


def upsert(user: str, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
    return {
        "name": user,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": b"password",
    }


@script(needs=("DescribeUserScramCredentials", "AlterUserScramCredentials"), properties="second")
def scram(play: Play) -> None:
    def altered(*upsertions: dict[str, Any], deleted: tuple[tuple[str, int], ...] = ()) -> dict[str, Any]:
        deletions = [{"name": user, "mechanism": mechanism} for user, mechanism in deleted]
        return {"deletions": deletions, "upsertions": list(upsertions)}

    def described(*users: str) -> dict[str, Any]:
        return {"users": [{"name": user} for user in users]}

    play.ask("nobody", "DescribeUserScramCredentials", 0, {"users": None})
    for case, asked in {
        "a user": altered(upsert("a")),
        "the same with another mechanism": altered(upsert("a", 2, 8192)),
        "others": altered(upsert("b"), upsert("c", 2, 16384)),
        "replaced": altered(upsert("b", 1, 5000)),
        "too few iterations": altered(upsert("d", 1, 4095)),
        "too many iterations": altered(upsert("d", 1, 16385)),
        "no mechanism": altered(upsert("d", 0), upsert("e", 3)),
        "no name": altered(upsert("")),
        "twice": altered(upsert("d", 1), upsert("d", 2)),
        "three times": altered(upsert("d", 1), upsert("d", 2), upsert("d", 1)),
        "deleted and made": altered(upsert("c", 1), deleted=(("c", 2),)),
        "deleted, though not there": altered(deleted=(("z", 1), ("c", 1))),
        "deleted by no mechanism": altered(deleted=(("c", 0),)),
        "one good, one bad": altered(upsert("f"), upsert("g", 9)),
        "an empty password": altered(upsert("h") | {"salted_password": b""}, upsert("a", 1)),
        "an empty password twice": altered(*[upsert("h") | {"salted_password": b""}] * 2),
        "an empty salt": altered(upsert("a") | {"salt": b""}),
        "nothing": altered(),
    }.items():
        play.ask(case, "AlterUserScramCredentials", 0, asked)

    def users() -> list[str]:
        answer = play.quietly("DescribeUserScramCredentials", 0, {"users": None})
        return sorted(result.user for result in answer.results)

    play.until("the last one is known", lambda: "f" in users())
    play.ask("all", "DescribeUserScramCredentials", 0, {"users": None})
    play.ask("all, by an empty list", "DescribeUserScramCredentials", 0, described())
    play.ask("some", "DescribeUserScramCredentials", 0, described("a", "z", "c", "c", ""))
    play.restart()
    play.ask("a restart finds them", "DescribeUserScramCredentials", 0, {"users": None})
    gone = altered(deleted=(("a", 1), ("b", 1), ("c", 2), ("f", 1)))
    play.ask("deleted", "AlterUserScramCredentials", 0, gone)
    play.ask("the other mechanism", "AlterUserScramCredentials", 0, altered(deleted=(("a", 2),)))
    play.until("nobody is known", lambda: not users())
    play.ask("nobody again", "DescribeUserScramCredentials", 0, {"users": None})
