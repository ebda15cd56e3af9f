"""Names of certificates' owners, and the users that rules make of them. `tests/golden` asks Java."""

from __future__ import annotations

import ssl

import pytest

from broker.security.distinguished_names import DerError, name_text, subject_name
from broker.security.principal_mapping import RuleError, mapped_name, parse_rules
from tests.support.certificates import KEPT

NAME = r"CN=alice,OU=Sales,O=Ex\, Ltd,C=DE"


def test_the_subject_of_a_certificate_is_written_as_java_writes_it() -> None:
    certificate = ssl.PEM_cert_to_DER_cert((KEPT / "alice.crt").read_text())
    assert subject_name(certificate) == NAME


def test_part_of_a_certificate_is_not_accepted_as_one() -> None:
    certificate = ssl.PEM_cert_to_DER_cert((KEPT / "alice.crt").read_text())
    for end in range(len(certificate)):
        with pytest.raises(DerError):
            subject_name(certificate[:end])
    assert name_text(b"0\0") == ""


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (None, NAME),
        ("DEFAULT", NAME),
        (r"RULE:^CN=(.*?),.*$/$1/", "alice"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", "ALICE@SALES"),
        (r"RULE:^OU=.*$/nobody/, RULE:^CN=([a-z]+).*$/user-$1/L, DEFAULT", "user-alice"),
        (r"RULE:CN=alice.*/$1/", None),
        ("", None),
    ],
)
def test_rules(rules: str | None, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(RuleError):
            mapped_name(parse_rules(rules), NAME)
    else:
        assert mapped_name(parse_rules(rules), NAME) == expected


@pytest.mark.parametrize(
    "pattern", ["[a", "(", r"\p{IsLatin}", "[a&&b]", "[a[b]]", r"a\h", "(?m)a", "a(?i)b"]
)
def test_a_pattern_that_python_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(RuleError, match="pattern"):
        parse_rules(f"RULE:{pattern}/x/")
