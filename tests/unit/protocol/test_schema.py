import pytest

from protocol.wire.schema import (
    LATEST,
    NEVER,
    ZERO_UUID,
    Message,
    Struct,
    array,
    binary,
    int32,
    parse_versions,
    records,
    string,
    struct,
    uuid,
)


class Part(Struct):
    index: int = int32("0+")
    leader: int = int32("0+", default=-1)


class Whole(Message, api_key=7, versions="0-3", flexible="2+"):
    name: str = string("0+")
    rack: str | None = string("0+", nullable="0+", default=None)
    topic_id: bytes = uuid("1+")
    secret: bytes = binary("0+")
    parts: list[Part] = array(Part, "0+")
    ids: list[int] | None = array(int32, "0+", nullable="0+", default=None)
    part: Part = struct(Part, "0+")
    maybe: Part | None = struct(Part, "0+", nullable="0+")
    tagged: Part | None = struct(Part, "2+", tag=0)
    batches: bytes | None = records("0+", nullable="0+")


@pytest.mark.parametrize(
    ("text", "versions"),
    [("3", (3, 3)), ("0-12", (0, 12)), ("12+", (12, LATEST)), ("", NEVER)],
)
def test_versions_read_as_in_kafkas_definitions(text: str, versions: tuple[int, int]) -> None:
    assert parse_versions(text) == versions


def test_a_message_knows_its_key_and_versions() -> None:
    assert (Whole.API_KEY, Whole.VERSIONS, Whole.FLEXIBLE) == (7, (0, 3), (2, LATEST))


def test_every_field_has_a_default() -> None:
    whole = Whole()
    assert (whole.name, whole.rack, whole.topic_id, whole.secret) == ("", None, ZERO_UUID, b"")
    assert (whole.parts, whole.ids, whole.maybe, whole.tagged, whole.batches) == ([], None, None, None, None)
    assert whole.part == Part(index=0, leader=-1)


def test_lists_and_structs_of_two_messages_are_not_the_same() -> None:
    first, second = Whole(), Whole()
    first.parts.append(Part())
    first.part.index = 5
    assert (second.parts, second.part.index) == ([], 0)


def test_messages_with_equal_fields_are_equal() -> None:
    assert Whole(name="a", parts=[Part(index=1)]) == Whole(name="a", parts=[Part(index=1)])
    assert Whole(name="a", parts=[Part(index=1)]) != Whole(name="a", parts=[Part(index=2)])
    assert Part() != Whole()


def test_a_message_is_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(Part())


def test_an_unknown_name_is_refused_by_the_constructor() -> None:
    with pytest.raises(TypeError, match="nmae"):
        Whole(nmae="a")  # type: ignore[call-arg]


def test_an_unknown_name_is_refused_by_assignment() -> None:
    part = Part()
    with pytest.raises(AttributeError):
        part.indx = 3  # type: ignore[attr-defined]


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        Part(3)  # type: ignore[misc]


def test_a_message_reads_as_its_constructor() -> None:
    assert repr(Part(index=3)) == "Part(index=3, leader=-1)"


def test_bytes_show_only_their_length_and_uuids_their_text() -> None:
    text = repr(Whole(secret=b"hunter2", batches=memoryview(bytes(70)), topic_id=bytes(15) + b"\1"))
    assert "secret=<7 bytes>" in text
    assert "batches=<70 bytes>" in text
    assert "topic_id=AAAAAAAAAAAAAAAAAAAAAQ" in text
    assert "hunter2" not in text


def test_the_quick_constructor_makes_the_same_as_calling_the_class() -> None:
    of_some = Whole.of(name="a", part=Part.of(index=3), ids=[1])
    assert of_some == Whole(name="a", part=Part(index=3), ids=[1])
    assert type(of_some) is Whole
    assert Whole.of() == Whole()
    assert Whole.of().parts is not Whole.of().parts


def test_the_quick_way_knows_no_other_fields_either() -> None:
    with pytest.raises(TypeError):
        Part.of(indexes=3)  # type: ignore[call-arg]
