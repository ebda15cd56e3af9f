"""Encoding and decoding messages by Python source that is generated and compiled per message and version.

The code for a version is compiled at its first use, and kept. `decode` and `encode` are for single messages.
The broker's hot path keeps the functions that `decoder` and `encoder` return. The source is straight-line
code: adjacent fields of fixed width share one `struct` call, which also reads lengths and counts. Nested
structs are inlined in loops. From ProduceRequest v10:

    o0.acks, o0.timeout_ms, n = unpack_hiB(data, pos)
    pos += 7
    if n > 127: n, pos = long_length(data, pos - 1, end)
    if n >= 1:
        n -= 1
        if n * 3 > end - pos: raise fail('cannot have so many elements', 'topic_data', n)
        items_1 = o0.topic_data = []
        for _ in range(n):
            o_2 = new(struct_3)

For hostile bytes this holds: nothing outside [pos, end) is read, no list is larger than the remaining bytes can
fill, nothing recurses, and only CodecError is raised. Lengths are as in Kafka: any negative length of a nullable
field is null, bad UTF-8 is replaced, unknown tagged fields are skipped, and the size of a known one isn't checked.

Encoding appends chunks of bytes to a list. Strings, bytes and records are chunks of their own, and are never
copied. If the version lacks a field, an ignorable one is left out, and any other must have its default. A
tagged field with its default is left out. Source: Kafka's protocol guide and MessageDataGenerator; KIP-482
for flexible versions.
"""

from __future__ import annotations

import struct
import types
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from protocol.errors import CodecError
from protocol.waiting import Waiting
from protocol.wire.primitives import (
    MAX_STRING_BYTES,
    MOST_TAGGED_FIELDS,
    SHORT_UNSIGNED_VARINTS,
    Bytes,
    encode_unsigned_varint,
    read_unsigned_varint,
    skip_tagged_fields,
)
from protocol.wire.schema import NEVER, Field, Message, Struct

M = TypeVar("M", bound=Message)

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
"""The struct codes of types with a fixed width."""

Decode = Callable[[Bytes, int, int], tuple[Any, int]]
DecodeInSteps = Callable[[Bytes, int, int], Waiting[tuple[Any, int]]]
Encode = Callable[[Any, list[Bytes]], None]
EncodeInSteps = Callable[[Any, list[Bytes]], Generator[None, None, None]]

ENTRIES_PER_STEP = 4_096
"""The list entries to decode or encode in one step: some milliseconds of work."""

MOST_ENTRIES = 500_000
"""The most list entries in a message that is decoded in steps. One or two bytes become an object of some hundred.
"""

_decoders: dict[tuple[type[Message], int], Decode] = {}
_encoders: dict[tuple[type[Message], int], Encode] = {}
_decoders_in_steps: dict[tuple[type[Message], int], DecodeInSteps] = {}
_encoders_in_steps: dict[tuple[type[Message], int], EncodeInSteps] = {}


def decoder(cls: type[M], version: int) -> Callable[[Bytes, int, int], tuple[M, int]]:
    """Return a function (data, pos, end) → (message, position after it). It reads nothing outside [pos, end).

    It raises CodecError for malformed bytes. Records are memoryviews into `data`, all else is copied. This
    raises CodecError if the message has no such version.
    """
    found = _decoders.get((cls, version))
    if found is None:
        found = _decoders[cls, version] = _compiled_decoder(_DecoderWriter(cls, version), cls)
    return found


def encoder(cls: type[M], version: int) -> Callable[[M, list[Bytes]], None]:
    """Return a function (message, chunks) that appends the message's bytes to the list, in any number of chunks.

    Records and bytes are appended uncopied. It raises CodecError for a value that this version can't express:
    null for a field that isn't nullable, a number out of range, a field that would be lost. This raises
    CodecError if the message has no such version.
    """
    found = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = _compiled_encoder(_EncoderWriter(cls, version), cls)
    return found


def decoder_in_steps(cls: type[M], version: int) -> DecodeInSteps:
    """The same as `decoder` as a coroutine, which lets others be served during long messages.

    It raises CodecError for a message with more than `MOST_ENTRIES`.
    """
    found = _decoders_in_steps.get((cls, version))
    if found is None:
        found = _compiled_decoder(_DecoderWriter(cls, version, in_steps=True), cls)
        _decoders_in_steps[cls, version] = found
    return found


def encoder_in_steps(cls: type[M], version: int) -> EncodeInSteps:
    """The same as `encoder` as a generator, which yields during long messages."""
    found = _encoders_in_steps.get((cls, version))
    if found is None:
        found = _compiled_encoder(_EncoderWriter(cls, version, in_steps=True), cls)
        _encoders_in_steps[cls, version] = found
    return found


def decode(cls: type[M], version: int, data: Bytes, pos: int = 0) -> M:
    """Decode the message at `pos`; bytes after it are ignored. Raises CodecError for malformed bytes."""
    message, _ = decoder(cls, version)(data, pos, len(data))
    return message


def encode(message: Message, version: int) -> bytes:
    """Encode a message. Raises CodecError for what this version can't express."""
    chunks: list[Bytes] = []
    encoder(type(message), version)(message, chunks)
    return b"".join(chunks)


class _Writer:
    """The common part of both writers: lines of source, the names in them, and the values of the next struct call."""

    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        first, last = cls.VERSIONS
        if not first <= version <= last:
            raise CodecError(f"{cls.__name__} has no version {version}")
        self.version = version
        self.in_steps = in_steps
        self.flexible = cls.FLEXIBLE[0] <= version <= cls.FLEXIBLE[1]
        self.lines: list[str] = []
        self.indent = 2
        self.count = 0
        self.codes = ""
        self.names: dict[str, Any] = {"struct_error": struct.error}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, prefix: str, value: object = None) -> str:
        self.count += 1
        name = f"{prefix}_{self.count}"
        if value is not None:
            self.names[name] = value
        return name


# ---- decoding


def _compiled_decoder(writer: _DecoderWriter, cls: type[Message]) -> Any:
    version = writer.version
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


class _DecoderWriter(_Writer):
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        super().__init__(cls, version, in_steps=in_steps)
        self.views = False
        self.targets: list[str] = []
        """The targets of the values that the next struct call reads."""

        def fail(reason: str, field: str = "", length: int = 0) -> CodecError:
            place = f"{cls.__name__} v{version}"
            return CodecError(f"{place}: {field} {reason}: {length}" if field else f"{place}: {reason}")

        self.names |= {
            "cut": _cut,
            "fail": fail,
            "long_length": _long_length,
            "new": object.__new__,
            "skip_tagged_fields": skip_tagged_fields,
            "unpack_from": struct.unpack_from,
            "unsigned_varint": read_unsigned_varint,
        }

    def read(self, code: str, target: str) -> None:
        """Add a value to the next struct call."""
        self.codes += code
        self.targets.append(target)

    def flush(self) -> None:
        """Write the struct call."""
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
        """Read the fields of a struct into the slots of `owner`."""
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
        """Write the code for the start of a loop over entries."""
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
        """Read a length into `n`. Returns the number that has been added to it (compact lengths are one larger)."""
        self.read("B" if self.flexible else code, "n")
        self.flush()
        if self.flexible:
            self.line("if n > 127: n, pos = long_length(data, pos - 1, end)")
        return int(self.flexible)

    def no_value(self, target: str, name: str, nullable: bool) -> None:
        """Write the branch for a negative length."""
        self.line(f"else: {target} = None" if nullable else f"else: raise fail('is null', {name!r}, n)")

    def blob(self, target: str, kind: str, name: str, nullable: bool) -> None:
        """Read strings, bytes or records: a length, then that many bytes."""
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
        self.line(f"if n > {MOST_TAGGED_FIELDS}: raise fail('cannot be so many', 'tagged fields', n)")
        self.line("for _ in range(n):")
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
        """The least bytes of a struct; never 0, since the count of an array needs a bound."""
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
    """The data before `end`, so that reading further fails by itself."""
    if end > len(data):
        raise CodecError(f"{end - len(data)} bytes are missing")
    return memoryview(data)[:end]


def _long_length(data: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a compact length (the length + 1) of several bytes; 0 (null) if it would be negative as Kafka's int32."""
    length, pos = read_unsigned_varint(data, pos, end)
    return (0 if length > 0x80000000 else length), pos


# ---- encoding

_SHORT = range(128)
_INT16_LENGTHS = tuple(struct.pack(">h", length) for length in _SHORT)
_INT32_LENGTHS = tuple(struct.pack(">i", length) for length in _SHORT)


def _compiled_encoder(writer: _EncoderWriter, cls: type[Message]) -> Any:
    version = writer.version
    writer.struct("message", cls)
    writer.flush()
    source = "\n".join(
        [
            "def encode(message, out):",
            *([f"    left = {ENTRIES_PER_STEP}", "    if 0: yield"] if writer.in_steps else []),
            "    try:",
            *(writer.lines or ["        pass"]),
            "    except struct_error as error:",
            "        raise fail(error, 'a number') from None",
        ]
    )
    exec(compile(source, f"<encoder of {cls.__name__} v{version}>", "exec"), writer.names)  # noqa: S102
    return writer.names["encode"]


class _EncoderWriter(_Writer):
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        super().__init__(cls, version, in_steps=in_steps)
        self.values: list[str] = []
        """The expressions that the next struct call writes."""
        # The target of chunks: the message's list, or that of the current tagged field.
        self.out = "out"
        self.add = "out.append"

        def fail(reason: object, field: str) -> CodecError:
            return CodecError(f"{cls.__name__} v{version}: {field} {reason}")

        self.names |= {
            "fail": fail,
            "pack": struct.pack,
            "unsigned_varint": encode_unsigned_varint,
            "short": SHORT_UNSIGNED_VARINTS,
            "h_lengths": _INT16_LENGTHS,
            "i_lengths": _INT32_LENGTHS,
        }

    def write(self, code: str, *values: str) -> None:
        """Add values to the next struct call."""
        self.codes += code
        self.values.extend(values)

    def packed(self, more_codes: str = "", *more_values: str) -> str:
        """The expression for all pending values, and more."""
        codes = self.codes + more_codes
        if not codes.strip("x"):
            return repr(bytes(len(codes)))
        pack = f"pack_{codes.replace('?', 'o')}"
        self.names[pack] = struct.Struct(">" + codes).pack
        return f"{pack}({', '.join([*self.values, *more_values])})"

    def flush(self) -> None:
        if self.codes:
            self.line(f"{self.add}({self.packed()})")
        self.codes = ""
        self.values = []

    def struct(self, owner: str, cls: type[Struct]) -> None:
        """Write the fields in the slots of `owner`. Values may remain for the next struct call."""
        tagged = []
        for field in cls.FIELDS:
            if not field.in_version(self.version):
                self.absent(f"{owner}.{field.name}", field)
            elif field.tag >= 0:
                tagged.append(field)
            else:
                self.value(f"{owner}.{field.name}", field)
        if self.flexible:
            if tagged:
                self.tagged_fields(owner, sorted(tagged, key=lambda field: field.tag))
            else:
                self.write("x")

    def absent(self, value: str, field: Field) -> None:
        if not field.ignorable:
            self.line(f"if {self.is_set(value, field)}: raise fail('is not in this version', {field.name!r})")

    def is_set(self, value: str, field: Field) -> str:
        """True if a field has another value than its default."""
        if field.kind == "struct" and field.nullable == NEVER:
            assert isinstance(field.element, type)
            return f"({value} is not None and {value} != {self.name('default', field.element())})"
        if field.fresh and field.kind == "struct":
            assert isinstance(field.element, type)
            return f"({value} is None or {value} != {self.name('default', field.element())})"
        if field.fresh:
            return f"({value} is None or len({value}))"
        if field.default is None:
            return f"{value} is not None"
        return f"{value} != {field.default!r}"

    def value(self, value: str, field: Field) -> None:
        kind = field.kind
        nullable = field.nullable_in(self.version)
        if kind == "uuid":
            temp = self.temporary(value)
            self.line(f"if len({temp}) != 16: raise fail('is no uuid', {field.name!r})")
            self.write("16s", temp)
        elif kind in FORMATS:
            self.write(FORMATS[kind], value)
        elif kind == "struct":
            self.struct_value(value, field, nullable)
        elif kind == "array":
            self.array(value, field, nullable)
        else:
            self.blob(value, kind, field.name, nullable)

    def temporary(self, value: str) -> str:
        temp = self.name("v")
        self.line(f"{temp} = {value}")
        return temp

    def struct_value(self, value: str, field: Field, nullable: bool) -> None:
        assert isinstance(field.element, type)
        temp = self.temporary(value)
        if not nullable:
            self.line(f"if {temp} is None: raise fail('is null', {field.name!r})")
            self.struct(temp, field.element)
            return
        null = "0" if field.tag >= 0 else "-1"
        self.line(f"if {temp} is None: {self.add}({self.packed('b', null)})")
        self.line("else:")
        self.indent += 1
        self.write("b", "1")
        self.struct(temp, field.element)
        self.flush()
        self.indent -= 1

    def length(self, code: str) -> None:
        """Write the pending values and the length in `n`, which is -1 for null."""
        if not self.flexible:
            if not self.codes:
                self.line(
                    f"{self.add}({code}_lengths[n] if 0 <= n < {len(_SHORT)} else {self.packed(code, 'n')})"
                )
                return
            self.write(code, "n")
            self.flush()
            return
        if self.codes:
            self.line(f"if n < 127: {self.add}({self.packed('B', 'n + 1')})")
            self.line("else:")
            self.indent += 1
            self.flush()
            self.line(f"{self.add}(unsigned_varint(n + 1))")
            self.indent -= 1
        else:
            self.line(f"{self.add}(short[n + 1] if n < 127 else unsigned_varint(n + 1))")

    def blob(self, value: str, kind: str, name: str, nullable: bool) -> None:
        """Write strings, bytes or records: a length, then a chunk (several for a list of record batches)."""
        temp = self.temporary(value)
        code = "h" if kind == "string" else "i"
        null = f"{self.add}({self.null(code)})" if nullable else f"raise fail('is null', {name!r})"
        self.line(f"if {temp} is None: {null}")
        self.line("else:")
        self.indent += 1
        if kind == "string":
            self.line(f"{temp} = {temp}.encode()")
            self.line(f"n = len({temp})")
            self.line(f"if n > {MAX_STRING_BYTES}: raise fail('is too long', {name!r})")
        elif kind == "records":
            self.line(f"n = sum(map(len, {temp})) if type({temp}) is list else len({temp})")
        else:
            self.line(f"n = len({temp})")
        self.length(code)
        if kind == "records":
            self.line(f"if type({temp}) is list: {self.out}.extend({temp})")
            self.line(f"else: {self.add}({temp})")
        else:
            self.line(f"{self.add}({temp})")
        self.indent -= 1

    def null(self, code: str) -> str:
        """The expression for the pending values and the length of null."""
        if self.flexible:
            return self.packed("x")
        return self.packed(code, "-1") if self.codes else repr(struct.pack(">" + code, -1))

    def array(self, value: str, field: Field, nullable: bool) -> None:
        element = field.element
        temp = self.temporary(value)
        missing = f"n, {temp} = -1, ()" if nullable else f"raise fail('is null', {field.name!r})"
        self.line(f"if {temp} is None: {missing}")
        self.line(f"else: n = len({temp})")
        self.length("i")
        if isinstance(element, type) or element in ("string", "uuid"):
            item = self.name("o")
            self.line(f"for {item} in {temp}:")
            self.indent += 1
            if self.in_steps:
                self.line("left -= 1")
                self.line("if not left:")
                self.line("    yield")
                self.line(f"    left = {ENTRIES_PER_STEP}")
            if isinstance(element, type):
                self.struct(item, element)
            else:
                self.value(item, Field(str(element), "0+", None))
            self.flush()
            self.indent -= 1
        else:
            code = FORMATS[str(element)]
            self.line(f"if n == 1: {self.add}({self.packed(code, f'{temp}[0]')})")
            self.line(f'elif n > 0: {self.add}(pack(f">{{n}}{code}", *{temp}))')

    def tagged_fields(self, owner: str, fields: list[Field]) -> None:
        tests = [self.is_set(f"{owner}.{field.name}", field) for field in fields]
        self.line(f"if not ({' or '.join(tests)}): {self.add}({self.packed('x')})")
        self.line("else:")
        self.indent += 1
        self.flush()
        out, add = self.out, self.add
        sections = self.name("sections")
        self.line(f"{sections} = []")
        for field, test in zip(fields, tests, strict=True):
            self.line(f"if {test}:")
            self.indent += 1
            tag = encode_unsigned_varint(field.tag)
            if field.kind in FORMATS or field.kind == "uuid":
                code = FORMATS.get(field.kind, "16s")
                if field.kind == "uuid":
                    self.line(f"if len({owner}.{field.name}) != 16: raise fail('is no uuid', {field.name!r})")
                head = tag + encode_unsigned_varint(struct.calcsize(">" + code))
                section = self.packed("B" * len(head) + code, *map(str, head), f"{owner}.{field.name}")
                self.line(f"{sections}.append({section})")
                self.indent -= 1
                continue
            self.out = self.name("out")
            self.add = f"{self.out}.append"
            self.line(f"{self.out} = []")
            self.value(f"{owner}.{field.name}", field)
            self.flush()
            self.line(f"section = b''.join({self.out})")
            self.line(f"{sections}.append({tag!r} + unsigned_varint(len(section)) + section)")
            self.indent -= 1
        self.out, self.add = out, add
        self.line(f"{self.add}(short[len({sections})])")
        self.line(f"{self.out} += {sections}")
        self.indent -= 1
