"""The parts of a message: typed classes whose fields say in which versions they exist, and how they are encoded.

    class TopicProduceData(Struct):
        name: str = string("0-12", ignorable=True)
        topic_id: bytes = uuid("13+", ignorable=True)
        partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")

    class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
        transactional_id: str | None = string("3+", nullable="3+", default=None)
        ...

The names are those of Kafka's message definitions in snake case. Every field has a default (Kafka's own, or
0, False, "", a new empty list, the zero uuid), so that only the relevant fields need to be given. A struct
has a slot for each field and no others: a misspelt name fails at once.

`codec` turns a class and a version into a decoder and an encoder. The terms (versions, nullable, tag,
ignorable, flexible) are those of Kafka's message definitions and of KIP-482.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, dataclass_transform

from protocol.wire.primitives import uuid_to_text

S = TypeVar("S")

ZERO_UUID: Final = bytes(16)
LATEST: Final = 32767
"""The upper end of a range such as "12+"."""

NEVER: Final = (0, -1)
"""The empty range."""

_ranges: dict[str, tuple[int, int]] = {"": NEVER, "none": NEVER}


def parse_versions(text: str) -> tuple[int, int]:
    """The first and last version of "3", "0-12" or "12+"; `NEVER` for ""."""
    found = _ranges.get(text)
    if found is None:
        first, dash, last = text.partition("-")
        if dash:
            found = (int(first), int(last))
        elif text.endswith("+"):
            found = (int(text[:-1]), LATEST)
        else:
            found = (int(text), int(text))
        _ranges[text] = found
    return found


class Field:
    """One field of a struct. `kind` is the name of its specifier ("int32", "string", "array", ...).

    `element` is the element of an array, or the class of a struct: a `Struct` class, or the name of a kind. A field
    with a `tag` (0 and up) is a tagged field in all its versions, and is left out if it has its default. `fresh`
    marks a mutable default, which is created anew for each message: an empty list or a struct.
    """

    __slots__ = ("default", "element", "fresh", "ignorable", "kind", "name", "nullable", "tag", "versions")

    def __init__(
        self,
        kind: str,
        versions: str,
        default: object,
        *,
        element: type[Struct] | str | None = None,
        fresh: bool = False,
        nullable: str = "",
        tag: int = -1,
        ignorable: bool = False,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = parse_versions(versions)
        self.default = default
        self.element = element
        self.fresh = fresh
        self.nullable = parse_versions(nullable)
        self.tag = tag
        self.ignorable = ignorable

    def in_version(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def nullable_in(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]


# The specifiers. They return Any, so that a type checker uses the annotation as the type of the field, and
# treats the field as one with a default.


def boolean(versions: str, *, default: bool = False, tag: int = -1, ignorable: bool = False) -> Any:
    """One byte; anything but 0 is true."""
    return Field("boolean", versions, default, tag=tag, ignorable=ignorable)


def int8(versions: str, *, default: int = 0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("int8", versions, default, tag=tag, ignorable=ignorable)


def int16(versions: str, *, default: int = 0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("int16", versions, default, tag=tag, ignorable=ignorable)


def uint16(versions: str, *, default: int = 0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("uint16", versions, default, tag=tag, ignorable=ignorable)


def int32(versions: str, *, default: int = 0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("int32", versions, default, tag=tag, ignorable=ignorable)


def uint32(versions: str, *, default: int = 0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("uint32", versions, default, tag=tag, ignorable=ignorable)


def int64(versions: str, *, default: int = 0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("int64", versions, default, tag=tag, ignorable=ignorable)


def float64(versions: str, *, default: float = 0.0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("float64", versions, default, tag=tag, ignorable=ignorable)


def uuid(versions: str, *, tag: int = -1, ignorable: bool = False) -> Any:
    """16 raw bytes, by default the zero uuid. `primitives.uuid_to_text` returns Kafka's text form."""
    return Field("uuid", versions, ZERO_UUID, tag=tag, ignorable=ignorable)


def string(
    versions: str, *, nullable: str = "", default: str | None = "", tag: int = -1, ignorable: bool = False
) -> Any:
    """At most 32767 bytes of UTF-8."""
    return Field("string", versions, default, nullable=nullable, tag=tag, ignorable=ignorable)


def binary(
    versions: str, *, nullable: str = "", default: bytes | None = b"", tag: int = -1, ignorable: bool = False
) -> Any:
    """Kafka's type "bytes": decoded as a copy."""
    return Field("binary", versions, default, nullable=nullable, tag=tag, ignorable=ignorable)


def records(versions: str, *, nullable: str = "", tag: int = -1, ignorable: bool = False) -> Any:
    """Record batches, decoded as a memoryview into the frame, and encoded from None, bytes or a list of bytes."""
    return Field("records", versions, None, nullable=nullable, tag=tag, ignorable=ignorable)


def array(
    element: type[Struct] | Callable[..., Any],
    versions: str,
    *,
    nullable: str = "",
    default: tuple[()] | None = (),
    tag: int = -1,
    ignorable: bool = False,
) -> Any:
    """A list of structs, or of primitives given by their specifier: `array(int32, "0+")`."""
    return Field(
        "array",
        versions,
        default,
        element=element if isinstance(element, type) else element.__name__,
        fresh=default is not None,
        nullable=nullable,
        tag=tag,
        ignorable=ignorable,
    )


def struct(
    element: type[Struct], versions: str, *, nullable: str = "", tag: int = -1, ignorable: bool = False
) -> Any:
    """A nested struct. Its default is None if it may be missing: if it is nullable or tagged.

    In Kafka, a tagged struct's default is a struct with only defaults, which isn't written. None means the
    same here, if the field isn't nullable. If it is both, null is a value like any other.
    """
    fresh = bool(nullable) == (tag >= 0)
    field = Field("struct", versions, None, element=element, fresh=fresh, tag=tag, ignorable=ignorable)
    field.nullable = parse_versions(nullable)
    return field


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """The metaclass of structs: fields become slots, and are listed in `FIELDS`."""

    FIELDS: tuple[Field, ...]

    if TYPE_CHECKING:

        @property
        def of(cls: type[S]) -> type[S]:
            """`Some.of(name=…)` does the same as `Some(name=…)` in less than half the time, for the most
            frequent answers.

            It is a function. A call of a class packs a tuple and a dict for its `__init__`.
            """
            ...

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int = -1,
        versions: str = "",
        flexible: str = "",
    ) -> StructType:
        fields = []
        for key, value in namespace.items():
            if type(value) is Field:
                value.name = key
                fields.append(value)
        for field in fields:
            del namespace[field.name]
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["FIELDS"] = tuple(fields)
        if versions:
            namespace["API_KEY"] = api_key
            namespace["VERSIONS"] = parse_versions(versions)
            namespace["FLEXIBLE"] = parse_versions(flexible)
        return super().__new__(mcls, name, bases, namespace)


class Struct(metaclass=StructType):
    """A part of a message: keyword-only constructor, equality by fields."""

    if not TYPE_CHECKING:

        def __init__(self, **values):
            # The first instance compiles the constructor of its class, so that importing stays cheap.
            cls = type(self)
            cls.__init__ = _constructor(cls)
            cls.__init__(self, **values)

        @classmethod
        def of(cls, **values):
            cls.of = staticmethod(_maker(cls))
            return cls.of(**values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in type(self).FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (f"{field.name}={_shown(field, getattr(self, field.name))}" for field in type(self).FIELDS)
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A request, a response, or a record of an internal topic: a struct with versions of its own.

    `API_KEY` is the key of the API for requests and responses, the type of the record for metadata and
    coordinator records, and -1 for data without one. `VERSIONS` can be decoded and encoded. Those in
    `FLEXIBLE` have compact lengths and tagged fields (KIP-482).
    """

    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[tuple[int, int]] = NEVER
    FLEXIBLE: ClassVar[tuple[int, int]] = NEVER


def _shown(field: Field, value: object) -> str:
    """A field's value for people. Bytes only show their length: they are long, or secret."""
    if field.kind == "uuid" and isinstance(value, bytes):
        return uuid_to_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    return repr(value)


def _constructor(cls: type[Struct]) -> Callable[..., None]:
    """Compile an `__init__` with one keyword per field."""
    names: dict[str, Any] = {}
    head, body = _written(cls, names)
    source = f"def __init__(self{head}):\n{body or '    pass'}\n"
    exec(source, names)  # noqa: S102
    constructor: Callable[..., None] = names["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    return constructor


def _maker(cls: type[Struct]) -> Callable[..., Struct]:
    """Compile the same as a function that returns a new one."""
    names: dict[str, Any] = {"_new": object.__new__, "_cls": cls}
    head, body = _written(cls, names)
    exec(f"def of({head.removeprefix(', ')}):\n    self = _new(_cls)\n{body}    return self\n", names)  # noqa: S102
    maker: Callable[..., Struct] = names["of"]
    maker.__qualname__ = f"{cls.__qualname__}.of"
    return maker


def _written(cls: type[Struct], names: dict[str, Any]) -> tuple[str, str]:
    """The keyword parameters for all fields, and the lines that set them on `self`. Values used go into `names`."""
    names["unset"] = object()
    parameters = []
    body = []
    for i, field in enumerate(cls.FIELDS):
        value = field.name
        if not field.fresh:
            names[f"default_{i}"] = field.default
            parameters.append(f"{field.name}=default_{i}")
        else:
            fresh = "[]"
            if field.kind == "struct":
                names[f"struct_{i}"] = field.element
                fresh = f"struct_{i}()"
            parameters.append(f"{field.name}=unset")
            value = f"{fresh} if {field.name} is unset else {field.name}"
        body.append(f"    self.{field.name} = {value}\n")
    return "".join(f", {each}" for each in ["*", *parameters]) if parameters else "", "".join(body)


def error_codes(answer: Struct) -> Iterator[int]:
    """All errors in an answer, at any depth, including 0 (none) (Kafka: `AbstractResponse.errorCounts`)."""
    for name, is_error in _error_places(type(answer)):
        value = getattr(answer, name)
        if is_error:
            yield value
        elif isinstance(value, list):
            for each in value:
                yield from error_codes(each)
        elif value is not None:
            yield from error_codes(value)


@cache
def _error_places(kind: type[Struct]) -> tuple[tuple[str, bool], ...]:
    """The fields that are errors or contain some, and whether they are errors themselves."""
    return tuple(
        (field.name, is_error)
        for field in kind.FIELDS
        if (is_error := field.name in ("error_code", "partition_error_code"))
        or (isinstance(field.element, type) and _error_places(field.element))
    )
