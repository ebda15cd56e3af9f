"""Writes the Python source that encodes one message in one version, and compiles it.

The function appends chunks of bytes to a list. Neighbours of fixed width, lengths and empty sections of
tagged fields are packed by one `struct` call; strings, bytes and records are chunks of their own and are
never copied.

A field that the version doesn't have is left out where it is ignorable, and must have its default
otherwise; a tagged field is left out at its default. Source: Kafka's MessageDataGenerator; KIP-482.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any

from protocol.errors import CodecError
from protocol.wire.compile_decoder import ENTRIES_PER_STEP, FORMATS
from protocol.wire.primitives import MAX_STRING_BYTES, SHORT_UNSIGNED_VARINTS, Bytes, encode_unsigned_varint
from protocol.wire.schema import NEVER, Field, Message, Struct

_SHORT = range(128)
_INT16_LENGTHS = tuple(struct.pack(">h", length) for length in _SHORT)
_INT32_LENGTHS = tuple(struct.pack(">i", length) for length in _SHORT)

Encode = Callable[[Any, list[Bytes]], None]

EncodeInSteps = Callable[[Any, list[Bytes]], Generator[None, None, None]]


def compile_encoder(cls: type[Message], version: int) -> Encode:
    """A function (message, chunks) that appends the message to the chunks."""
    encode: Encode = _compiled(_Writer(cls, version), cls)
    return encode


def compile_encoder_in_steps(cls: type[Message], version: int) -> EncodeInSteps:
    """The same as a generator, which yields now and then."""
    encode: EncodeInSteps = _compiled(_Writer(cls, version, in_steps=True), cls)
    return encode


def _compiled(writer: _Writer, cls: type[Message]) -> Any:
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


class _Writer:
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        self.version = version
        self.in_steps = in_steps
        self.flexible = cls.FLEXIBLE[0] <= version <= cls.FLEXIBLE[1]
        self.lines: list[str] = []
        self.indent = 2
        self.count = 0
        # What the next struct call writes: its codes and the values' expressions.
        self.codes = ""
        self.values: list[str] = []
        # Where chunks go: the message's list, or that of the tagged field at hand.
        self.out = "out"
        self.add = "out.append"

        def fail(reason: object, field: str) -> CodecError:
            return CodecError(f"{cls.__name__} v{version}: {field} {reason}")

        self.names: dict[str, Any] = {
            "fail": fail,
            "pack": struct.pack,
            "struct_error": struct.error,
            "unsigned_varint": encode_unsigned_varint,
            "short": SHORT_UNSIGNED_VARINTS,
            "h_lengths": _INT16_LENGTHS,
            "i_lengths": _INT32_LENGTHS,
        }

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, prefix: str, value: object = None) -> str:
        self.count += 1
        name = f"{prefix}_{self.count}"
        if value is not None:
            self.names[name] = value
        return name

    def write(self, code: str, *values: str) -> None:
        """Lets the next struct call write more."""
        self.codes += code
        self.values.extend(values)

    def packed(self, more_codes: str = "", *more_values: str) -> str:
        """The expression of all that waits, and more."""
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
        """The fields in the slots of `owner`; may leave values for the next struct call."""
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
        """Whether a field has another value than its default."""
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
        """Writes what waits and the length in `n`, which is -1 for null."""
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
        """Strings, bytes and records: a length, then a chunk (several for a list of record batches)."""
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
        """The expression of what waits, and of a length that says null."""
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
