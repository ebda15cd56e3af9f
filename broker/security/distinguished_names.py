"""The owner of a certificate as text: the subject's name as RFC 2253 writes it, in Java's form.

Principals and ACLs are compared letter by letter, so the form matters. Source: `X500Principal.getName()`,
which Kafka uses. OpenSSL and Python write a subject differently.
"""

from __future__ import annotations

from typing import NamedTuple

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attributes in RFC 2253. All others are written as numbers, with the bytes of their values."""

_SEQUENCE, _SET, _OID, _CONTEXT_0 = 0x30, 0x31, 0x06, 0xA0
_EXTENSIONS = 0xA3
_ALTERNATIVE_NAMES = bytes((0x55, 0x1D, 0x11))  # 2.5.29.17
_TEXTS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))  # UTF8, Printable, T61, IA5, General, BMP
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANKS = " \r"


class DerError(ValueError):
    """The bytes aren't a valid certificate."""


class _Element(NamedTuple):
    """A DER element. Its content is from `start` to `end`, the whole element from `begin` to `end`."""

    tag: int
    begin: int
    start: int
    end: int


def subject_name(certificate: bytes) -> str:
    """Return the subject of an X.509 certificate (DER). Raises DerError."""
    fields = _within(certificate)
    if not fields:
        raise DerError("an empty certificate")
    signed = [*_elements(certificate, fields[0].start, fields[0].end)]
    place = (
        5 if signed and signed[0].tag == _CONTEXT_0 else 4
    )  # version, serial, signature, issuer, validity, subject
    if len(signed) <= place:
        raise DerError("a certificate without a subject")
    return name_text(certificate[signed[place].begin : signed[place].end])


def alternative_names(certificate: bytes) -> frozenset[tuple[int, bytes]]:
    """Return the subject's alternative names in an X.509 certificate (DER), each as tag and content: 0x82 for
    a host name, 0x87 for an address. Raises DerError."""
    fields = _within(certificate)
    if not fields:
        raise DerError("an empty certificate")
    for field in _elements(certificate, fields[0].start, fields[0].end):
        if field.tag != _EXTENSIONS:
            continue
        for each in _within(certificate[field.start : field.end]):
            extension = certificate[field.start + each.start : field.start + each.end]
            parts = _elements(extension, 0, len(extension))
            if not parts or extension[parts[0].start : parts[0].end] != _ALTERNATIVE_NAMES:
                continue
            names = extension[parts[-1].start : parts[-1].end]
            return frozenset((name.tag, names[name.start : name.end]) for name in _within(names))
    return frozenset()


def name_text(name: bytes) -> str:
    """Return an X.500 name (DER) as RFC 2253 writes it. Raises DerError."""
    parts = []
    for relative in _within(name):
        pairs = [_pair(name, each) for each in _elements(name, relative.start, relative.end)]
        parts.append("+".join(pairs))
    return ",".join(reversed(parts))


def _pair(name: bytes, element: _Element) -> str:
    inside = [*_elements(name, element.start, element.end)]
    if len(inside) != 2 or inside[0].tag != _OID:
        raise DerError("an invalid attribute")
    oid, value = inside
    number = _oid_text(name[oid.start : oid.end])
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{name[value.begin : value.end].hex()}"
    text = name[value.start : value.end].decode("utf-8", "replace")  # for BMP, too, as in Java
    return f"{keyword}={_escaped(text)}"


def _escaped(text: str) -> str:
    characters = [f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text]
    escaped = "".join(characters)
    lead = len(escaped) - len(escaped.lstrip(_BLANKS))
    trail = len(escaped.rstrip(_BLANKS))
    return "".join(
        f"\\{each}" if place < lead or place >= trail else each for place, each in enumerate(escaped)
    )


def _within(data: bytes) -> list[_Element]:
    """Return the elements of the sequence that makes up all of `data`."""
    whole = _elements(data, 0, len(data))
    if len(whole) != 1 or whole[0].tag != _SEQUENCE:
        raise DerError("it isn't a sequence")
    return _elements(data, whole[0].start, whole[0].end)


def _elements(data: bytes, start: int, end: int) -> list[_Element]:
    """Return the elements between `start` and `end`, in order. Raises DerError if they don't fill that
    range."""
    found = []
    at = start
    while at < end:
        begin = at
        if end - at < 2:
            raise DerError("it is cut off")
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4 or end - at < count:
                raise DerError("an invalid length")
            length = int.from_bytes(data[at : at + count])
            at += count
        if end - at < length:
            raise DerError("it is cut off")
        found.append(_Element(tag, begin, at, at + length))
        at += length
    return found


def _oid_text(data: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or data[-1] & 0x80:
        raise DerError("an attribute without a number")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
