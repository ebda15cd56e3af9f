"""Who the owner of a certificate is: as Java writes its name, and as Kafka's own rules make a user of it."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.security.distinguished_names import name_text
from broker.security.principal_mapping import RuleError, mapped_name, parse_rules

OIDS = (
    "0603550403",
    "0603550406",
    "0603550407",
    "0603550408",
    "0603550409",
    "060355040a",
    "060355040b",
    "060355040c",
    "0603550405",
    "060a0992268993f22c640119",
    "060a0992268993f22c640101",
    "06092a864886f70d010901",
)
TEXTS = (
    "alice",
    "Sales, EU",
    ' "quoted" ',
    "  two blanks",
    "a+b=c;<d>#e\\f",
    "#lead",
    "Zoë Ünder",
    "日本 😀",
    "\r\n",
    "a\0b",
    "",
    " ",
    "x" * 200,
)
TAGS = (0x0C, 0x13, 0x16, 0x14, 0x1B, 0x1E, 0x1C)
NAMES = (
    "CN=alice,OU=Sales,O=Ex,C=DE",
    "CN=Alice.Smith,OU=ops,DC=example,DC=com",
    "O=Ex",
    "",
    "CN=a/b,OU=x",
    "CN=a\nb",
    "CN=a\r\n",
    "CN=ABC\\, D",
    "1.2.840.113549.1.9.1=#1613,CN=x",
)
RULES = (
    "DEFAULT",
    "",
    "RULE:^CN=(.*?),.*$/$1/",
    "RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L, DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),.*$/$1@$3/U,RULE:.*/x/",
    "RULE:^CN=([a-z]+).*/$12$0${9}/",
    "RULE:CN=(.*)/$4$5$1/",
    r"RULE:CN=(\w+).*/$1\/x\$/",
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
    "RULE:.*/x/",
    "RULE:.+/$1/",
    "RULE:(.)(.)(.).*/$3$2$1$11/",
    "RULE:(?<user>CN=.*?),.*/${user}/",
    "RULE:(CN=a|CN=alice).*/[$1]/",
    r"RULE:CN=\p{Alpha}++,?.*/letters/, RULE:(?i)cn=(.*)/$1/U",
    r"RULE:\QCN=\E(.*)\z/$1/,DEFAULT",
    "RULE:CN=([^,\\/]+)(,.*)?/$1/",
    "RULE:a/b/Lxyz",
    "RULE:a/b",
    "RULE:[/b/",
    "nonsense",
    "DEFAULT,RULE:x/y/",
    " DEFAULT , ",
    "RULE:()(x*)/<$1$2>/",
    "RULE:(x)?.*/$1/",
    "RULE:.*/\\/",
    "RULE:.*/$/",
    "RULE:.*$/y/L",
)


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def drawn_name(luck: random.Random) -> bytes:
    parts = []
    for _ in range(luck.randint(0, 4)):
        pairs = []
        for _ in range(luck.choice((1, 1, 1, 2))):
            tag, text = luck.choice(TAGS), luck.choice(TEXTS)
            encoding = {0x1E: "utf-16-be", 0x1C: "utf-32-be"}.get(tag, "utf-8")
            if tag == 0x1E:
                text = "".join(each for each in text if ord(each) < 0xFFFF)
            value = der(tag, text.encode(encoding))
            pairs.append(der(0x30, bytes.fromhex(luck.choice(OIDS)) + value))
        parts.append(der(0x31, b"".join(pairs)))
    return der(0x30, b"".join(parts))


def ours(rules: str, name: str) -> str:
    try:
        return "+" + mapped_name(parse_rules(rules), name).encode().hex()
    except RuleError:
        return "-"


def test_names_and_rules_map_as_in_java_and_kafka(
    needs_kafka: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path(__file__).parent / "java" / "PrincipalNames.java"
    compiled = ["javac", "-cp", needs_kafka("classpath").strip(), "-d", tmp_path, program]
    subprocess.run(compiled, check=True, timeout=120)
    monkeypatch.setitem(os.environ, "KAFKA_CP", str(tmp_path))
    luck = random.Random(7)
    names = [drawn_name(luck) for _ in range(600)]
    asked = [(f"name\t{name.hex()}", "+" + name_text(name).encode().hex()) for name in names]
    asked += [
        (f"map\t{rules.encode().hex()}\t{name.encode().hex()}", ours(rules, name))
        for rules in RULES
        for name in NAMES
    ]
    lines = needs_kafka("class", "PrincipalNames", stdin="\n".join([each for each, _ in asked] + [""]))
    heard = [line if line.startswith("+") else "-" for line in lines.splitlines()]
    assert len(heard) == len(asked)
    differ = [
        (question, shown(kafkas), shown(answer))
        for (question, answer), kafkas in zip(asked, heard, strict=True)
        if kafkas != answer
    ]
    assert differ == []


def shown(answer: str) -> str:
    return answer if answer == "-" else bytes.fromhex(answer[1:]).decode()
