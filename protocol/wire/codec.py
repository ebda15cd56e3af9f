"""Messages to bytes and back. What a version needs is compiled at its first use, and kept.

`decode` and `encode` serve whoever has one message; the broker's hot path keeps hold of what `decoder` and
`encoder` answer. Source of the format: Kafka's protocol guide; KIP-482 for flexible versions.
"""

from collections.abc import Callable
from typing import TypeVar

from protocol.errors import CodecError
from protocol.wire.compile_decoder import Decode, DecodeInSteps, compile_decoder, compile_decoder_in_steps
from protocol.wire.compile_encoder import Encode, EncodeInSteps, compile_encoder, compile_encoder_in_steps
from protocol.wire.primitives import Bytes
from protocol.wire.schema import Message

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type[Message], int], Decode] = {}
_encoders: dict[tuple[type[Message], int], Encode] = {}
_decoders_in_steps: dict[tuple[type[Message], int], DecodeInSteps] = {}
_encoders_in_steps: dict[tuple[type[Message], int], EncodeInSteps] = {}


def decoder(cls: type[M], version: int) -> Callable[[Bytes, int, int], tuple[M, int]]:
    """A function (data, pos, end) -> (message, the position behind it) that reads nothing outside of [pos,
    end).

    It raises CodecError where the bytes make no sense. Records are memoryviews into `data`, all else is
    copied. CodecError also where the message has no such version.
    """
    found = _decoders.get((cls, version))
    if found is None:
        found = _decoders[cls, version] = compile_decoder(cls, _checked(cls, version))
    return found


def encoder(cls: type[M], version: int) -> Callable[[M, list[Bytes]], None]:
    """A function (message, chunks) that appends the message's bytes to the list, in as many chunks as it
    likes.

    Records and bytes are appended as they are, uncopied. It raises CodecError for a value that this
    version has no form for: null where there is no null, a number out of range, a field that would be lost.
    CodecError also where the message has no such version.
    """
    found = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = compile_encoder(cls, _checked(cls, version))
    return found


def decoder_in_steps(cls: type[M], version: int) -> DecodeInSteps:
    """As `decoder`, a generator: who has other things to do goes on with them where it yields, and finds the message
    and the position in what it returns."""
    found = _decoders_in_steps.get((cls, version))
    if found is None:
        found = compile_decoder_in_steps(cls, _checked(cls, version))
        _decoders_in_steps[cls, version] = found
    return found


def encoder_in_steps(cls: type[M], version: int) -> EncodeInSteps:
    """As `encoder`, a generator that yields where there is much."""
    found = _encoders_in_steps.get((cls, version))
    if found is None:
        found = compile_encoder_in_steps(cls, _checked(cls, version))
        _encoders_in_steps[cls, version] = found
    return found


def decode(cls: type[M], version: int, data: Bytes, pos: int = 0) -> M:
    """The message at `pos`; bytes behind it are ignored. CodecError where the bytes make no sense."""
    message, _ = decoder(cls, version)(data, pos, len(data))
    return message


def encode(message: Message, version: int) -> bytes:
    """The message's bytes. CodecError for what this version has no form for."""
    chunks: list[Bytes] = []
    encoder(type(message), version)(message, chunks)
    return b"".join(chunks)


def _checked(cls: type[Message], version: int) -> int:
    first, last = cls.VERSIONS
    if not first <= version <= last:
        raise CodecError(f"{cls.__name__} has no version {version}")
    return version
