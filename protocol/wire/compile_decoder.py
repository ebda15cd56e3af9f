"""Writes the Python source that decodes one message in one version, and compiles it.

The source is straight-line code: neighbours of fixed width are one `struct` call, lengths and counts ride
along in the same call, nested structs stand inline in loops. Out of ProduceRequest v10:

    o0.acks, o0.timeout_ms, n = unpack_hiB(data, pos)
    pos += 7
    if n > 127: n, pos = long_length(data, pos - 1, end)
    if n >= 1:
        n -= 1
        if n * 3 > end - pos: raise fail('cannot have so many elements', 'topic_data', n)
        items_1 = o0.topic_data = []
        for _ in range(n):
            o_2 = new(struct_3)

What holds for hostile bytes: nothing outside of [pos, end) is read, no list is made larger than what the
bytes left can fill, nothing recurses, and only CodecError is raised. Lengths are Kafka's: any negative
length of a nullable is null, bad UTF-8 is replaced, tagged fields that nobody knows are skipped, and the
size of a known one isn't looked at. Source: Kafka's MessageDataGenerator; KIP-482.
"""

from __future__ import annotations

import struct
import types
from collections.abc import Callable
from typing import Any, Final

from protocol.errors import CodecError
from protocol.waiting import Waiting
from protocol.wire.primitives import (
    MAX_INT32,
    MAX_STRING_BYTES,
    MOST_TAGGED_FIELDS,
    Bytes,
    read_unsigned_varint,
    skip_tagged_fields,
)
from protocol.wire.schema import Field, Message, Struct

FORMATS: Final = {
    "boolean": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The struct codes of the kinds of fixed width."""

Decode = Callable[[Bytes, int, int], tuple[Any, int]]
DecodeInSteps = Callable[[Bytes, int, int], Waiting[tuple[Any, int]]]

ENTRIES_PER_STEP = 4_096
"""Entries of lists that are decoded, or encoded, in one step of those who do it in steps: some milliseconds."""

MOST_ENTRIES = 500_000
"""Of all lists of a message that is decoded in steps. A byte or two become an object of some hundred."""


def compile_decoder(cls: type[Message], version: int) -> Decode:
    """A function (data, pos, end) -> (message, the position behind it)."""
    decode: Decode = _compiled(_Writer(cls, version), cls, version)
    return decode


def compile_decoder_in_steps(cls: type[Message], version: int) -> DecodeInSteps:
    """The same as a coroutine. CodecError for a message of more than `MOST_ENTRIES`."""
    decode: DecodeInSteps = _compiled(_Writer(cls, version, in_steps=True), cls, version)
    return decode


def _compiled(writer: _Writer, cls: type[Message], version: int) -> Any:
    writer.line("o0 = new(struct_0)")
    writer.names["struct_0"] = cls
    writer.struct("o0", cls)
    source = "\n".join(
        [
            "def decode(data, pos, end):",
            *(["    if type(data) is not memoryview: data = memoryview(data)"] if writer.views else []),
            "    if len(data) != end: data = cut(data, end)",
            *([f"    left, total = {ENTRIES_PER_STEP}, 0", "    if 0: yield"] if writer.in_steps else []),
            "    try:",
            *writer.lines,
            "    except (IndexError, struct_error):",
            "        raise fail('cut short') from None",
            "    return o0, pos",
        ]
    )
    exec(compile(source, f"<decoder of {cls.__name__} v{version}>", "exec"), writer.names)  # noqa: S102
    decode = writer.names["decode"]
    return types.coroutine(decode) if writer.in_steps else decode


class _Writer:
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        self.version = version
        self.in_steps = in_steps
        self.flexible = cls.FLEXIBLE[0] <= version <= cls.FLEXIBLE[1]
        self.views = False
        self.lines: list[str] = []
        self.indent = 2
        self.count = 0
        # What the next struct call reads: its codes, and where the values go.
        self.codes = ""
        self.targets: list[str] = []

        def fail(reason: str, field: str = "", length: int = 0) -> CodecError:
            place = f"{cls.__name__} v{version}"
            return CodecError(f"{place}: {field} {reason}: {length}" if field else f"{place}: {reason}")

        self.names: dict[str, Any] = {
            "cut": _cut,
            "fail": fail,
            "long_length": _long_length,
            "new": object.__new__,
            "skip_tagged_fields": skip_tagged_fields,
            "struct_error": struct.error,
            "unpack_from": struct.unpack_from,
            "unsigned_varint": read_unsigned_varint,
        }

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, prefix: str, value: object = None) -> str:
        self.count += 1
        name = f"{prefix}_{self.count}"
        if value is not None:
            self.names[name] = value
        return name

    def read(self, code: str, target: str) -> None:
        """Lets the next struct call read one value more."""
        self.codes += code
        self.targets.append(target)

    def flush(self) -> None:
        """Writes that call."""
        if not self.codes:
            return
        packed = struct.Struct(">" + self.codes)
        unpack = f"unpack_{self.codes.replace('?', 'o')}"
        self.names[unpack] = packed.unpack_from
        comma = "," if len(self.targets) == 1 else ""
        if self.codes == "B":
            self.line(f"{self.targets[0]} = data[pos]")
        else:
            self.line(f"{', '.join(self.targets)}{comma} = {unpack}(data, pos)")
        self.line(f"pos += {packed.size}")
        self.codes = ""
        self.targets = []

    def struct(self, owner: str, cls: type[Struct]) -> None:
        """The fields of a struct into the slots of `owner`."""
        tagged = []
        for field in cls.FIELDS:
            if not field.in_version(self.version) or field.tag >= 0:
                self.line(f"{owner}.{field.name} = {self.default(field)}")
                if field.in_version(self.version):
                    tagged.append(field)
        for field in cls.FIELDS:
            if field.in_version(self.version) and field.tag < 0:
                self.value(f"{owner}.{field.name}", field)
        if self.flexible:
            self.tagged_fields(owner, tagged)
        self.flush()

    def default(self, field: Field) -> str:
        if field.fresh:
            return f"{self.name('struct', field.element)}()" if field.kind == "struct" else "[]"
        return repr(field.default)

    def value(self, target: str, field: Field) -> None:
        kind = field.kind
        nullable = field.nullable_in(self.version)
        if kind in FORMATS:
            self.read(FORMATS[kind], target)
        elif kind == "struct":
            assert isinstance(field.element, type)
            if nullable:
                tagged = field.tag >= 0
                self.read("B" if tagged else "b", "n")
                self.flush()
                self.line(f"if n < {int(tagged)}: {target} = None")
                self.line("else:")
                self.indent += 1
            inner = self.new_struct(field.element)
            self.struct(inner, field.element)
            self.line(f"{target} = {inner}")
            if nullable:
                self.indent -= 1
        elif kind == "array":
            self.array(target, field, nullable)
        else:
            self.blob(target, kind, field.name, nullable)

    def count_entry(self) -> None:
        """At the beginning of a loop over entries."""
        if self.in_steps:
            self.line("left -= 1")
            self.line("if not left:")
            self.line("    yield")
            self.line(f"    left, total = {ENTRIES_PER_STEP}, total + {ENTRIES_PER_STEP}")
            self.line(f"    if total > {MOST_ENTRIES}: raise fail('has more entries than are taken')")

    def new_struct(self, cls: type[Struct]) -> str:
        self.flush()
        inner = self.name("o")
        self.line(f"{inner} = new({self.name('struct', cls)})")
        return inner

    def length(self, code: str) -> int:
        """The length into `n`; answers what has been added to it (compact lengths are one larger)."""
        self.read("B" if self.flexible else code, "n")
        self.flush()
        if self.flexible:
            self.line("if n > 127: n, pos = long_length(data, pos - 1, end)")
        return int(self.flexible)

    def no_value(self, target: str, name: str, nullable: bool) -> None:
        """The branch of a negative length."""
        self.line(f"else: {target} = None" if nullable else f"else: raise fail('is null', {name!r}, n)")

    def blob(self, target: str, kind: str, name: str, nullable: bool) -> None:
        """Strings, bytes and records: a length, then so many bytes."""
        plus = self.length("h" if kind == "string" else "i")
        self.line(f"if n >= {plus}:")
        self.indent += 1
        self.line(f"stop = pos + n{' - 1' if plus else ''}")
        too_long = f" or n > {MAX_STRING_BYTES + plus}" if kind == "string" and plus else ""
        self.line(f"if stop > end{too_long}: raise fail('has no such length', {name!r}, n - {plus})")
        if kind == "string":
            self.line(f'{target} = str(data[pos:stop], "utf-8", "replace")')
        elif kind == "binary":
            self.line(f"{target} = bytes(data[pos:stop])")
        else:
            self.views = True
            self.line(f"{target} = data[pos:stop]")
        self.line("pos = stop")
        self.indent -= 1
        self.no_value(target, name, nullable)

    def array(self, target: str, field: Field, nullable: bool) -> None:
        element = field.element
        plus = self.length("i")
        self.line(f"if n >= {plus}:")
        self.indent += 1
        if plus:
            self.line("n -= 1")
        least = (
            self.least_bytes_of_struct(element)
            if isinstance(element, type)
            else self.least_bytes(str(element))
        )
        need = "n" if least <= 1 else f"n * {least}"
        self.line(f"if {need} > end - pos: raise fail('cannot have so many elements', {field.name!r}, n)")
        if isinstance(element, type):
            items = self.name("items")
            self.line(f"{items} = {target} = []")
            self.line("for _ in range(n):")
            self.indent += 1
            self.count_entry()
            inner = self.new_struct(element)
            self.struct(inner, element)
            self.line(f"{items}.append({inner})")
            self.indent -= 1
        elif element == "string":
            items = self.name("items")
            self.line(f"{items} = {target} = []")
            self.line("for _ in range(n):")
            self.indent += 1
            self.count_entry()
            self.blob("text", "string", field.name, nullable=False)
            self.line(f"{items}.append(text)")
            self.indent -= 1
        elif element == "uuid":
            self.line(f"{target} = [bytes(data[at:at + 16]) for at in range(pos, pos + n * 16, 16)]")
            self.line("pos += n * 16")
        else:
            code = FORMATS[str(element)]
            self.line(f'{target} = list(unpack_from(f">{{n}}{code}", data, pos)) if n else []')
            self.line(f"pos += {need}")
        self.indent -= 1
        self.no_value(target, field.name, nullable)

    def tagged_fields(self, owner: str, fields: list[Field]) -> None:
        self.read("B", "n")
        self.flush()
        if not fields:
            self.line("if n: pos = skip_tagged_fields(data, pos - 1, end)")
            return
        self.line("if n:")
        self.indent += 1
        self.line("n, pos = unsigned_varint(data, pos - 1)")
        self.line(
            f"if {MOST_TAGGED_FIELDS} < n <= {MAX_INT32}: raise fail('cannot be so many', 'tagged fields', n)"
        )
        self.line(f"for _ in range(n if n <= {MAX_INT32} else 0):")
        self.indent += 1
        self.line("tag, pos = unsigned_varint(data, pos)")
        self.line("size, pos = unsigned_varint(data, pos)")
        for i, field in enumerate(fields):
            self.line(f"{'elif' if i else 'if'} tag == {field.tag}:")
            self.indent += 1
            self.value(f"{owner}.{field.name}", field)
            self.flush()
            self.indent -= 1
        self.line("else:")
        self.line("    pos += size")
        self.line("    if pos > end: raise fail('has no such size', 'a tagged field', size)")
        self.indent -= 2

    def least_bytes(self, kind: str) -> int:
        if kind in FORMATS:
            return struct.calcsize(">" + FORMATS[kind])
        if self.flexible:
            return 1
        return 2 if kind == "string" else 4

    def least_bytes_of_struct(self, cls: type[Struct]) -> int:
        """The bytes that a struct takes at least; never 0, since the count of an array needs a bound."""
        total = int(self.flexible)
        for field in cls.FIELDS:
            if not field.in_version(self.version) or field.tag >= 0:
                continue
            if field.kind != "struct":
                total += self.least_bytes(field.kind)
            elif field.nullable_in(self.version):
                total += 1
            else:
                assert isinstance(field.element, type)
                total += self.least_bytes_of_struct(field.element)
        return max(total, 1)


def _cut(data: Bytes, end: int) -> memoryview:
    """Only what lies before `end`, so that reading past it fails by itself."""
    if end > len(data):
        raise CodecError(f"{end - len(data)} bytes are missing")
    return memoryview(data)[:end]


def _long_length(data: Bytes, pos: int, end: int) -> tuple[int, int]:
    """A compact length (the length + 1) of several bytes; 0, for null, where Kafka's int32 gets negative."""
    length, pos = read_unsigned_varint(data, pos, end)
    return (0 if length > 0x80000000 else length), pos
