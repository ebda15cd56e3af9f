"""One connection to one broker. Requests go out one after the other, and each waits for its answer."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Final, TypeVar

from cli.client.sasl import sign_in
from cli.errors import UNREACHABLE, CommandError, CommandUsageError
from cli.options import CLIENT_ID
from protocol.apis import APIS, encode_request_frame, response_body
from protocol.errors import CodecError, Error
from protocol.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from protocol.wire.codec import decode
from protocol.wire.schema import Message

R = TypeVar("R", bound=Message)

CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 60.0
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Connection:
    """Once made, it is signed in and knows the broker's versions. Every method raises CommandError, with UNREACHABLE if
    nobody answers."""

    def __init__(self, host: str, port: int, settings: Mapping[str, str]) -> None:
        self.address = f"{host}:{port}"
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        protocol = settings.get("security.protocol", PLAINTEXT).upper()
        if protocol not in PROTOCOLS:
            raise CommandUsageError(f"security.protocol={protocol}: one of {', '.join(PROTOCOLS)} is needed")
        try:
            self._socket = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
        except OSError as error:
            raise self._unreachable(error) from None
        except ValueError as error:  # such as UnicodeError for a name like foo..bar
            raise self._no_address(error) from None
        try:
            self._stand(protocol, host, settings)
        except BaseException:
            self._socket.close()
            raise

    def _stand(self, protocol: str, host: str, settings: Mapping[str, str]) -> None:
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if protocol.endswith("SSL"):
                self._socket = _tls(settings).wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise self._unreachable(error) from None
        except ValueError as error:  # such as an empty name, which no certificate has
            raise self._no_address(error) from None
        self._learn_versions()
        self._socket.settimeout(ANSWER_TIMEOUT_S)  # until here, the listener may not be a Kafka at all
        if protocol.startswith("SASL"):
            sign_in(self, settings)

    def _unreachable(self, error: OSError) -> CommandError:
        return CommandError(f"{self.address} can't be reached: {_reason(error)}", UNREACHABLE)

    def _no_address(self, error: ValueError) -> CommandError:
        return CommandUsageError(f"{self.address} isn't a host's address: {error}")

    def version_of(self, request: type[Message]) -> int:
        """Return the latest version that both know. Raises CommandError if there is none."""
        least, most = self._versions.get(request.API_KEY, (0, -1))
        version = min(most, request.VERSIONS[1])
        if version < max(least, request.VERSIONS[0]):
            name = APIS[request.API_KEY].name
            raise CommandError(f"the broker at {self.address} doesn't know {name}, which this command needs")
        return version

    def ask(self, request: Message, response: type[R], version: int | None = None) -> R:
        """Return the answer, with whatever errors it contains."""
        known = self.version_of(type(request)) if version is None else version
        self._correlation_id += 1
        try:
            frame = encode_request_frame(request, known, self._correlation_id, CLIENT_ID)
        except (CodecError, UnicodeEncodeError) as error:  # such as a name of 40,000 letters
            raise CommandUsageError(f"{type(request).__name__} can't say that: {error}") from None
        answer = self._exchange(frame)
        try:
            body = response_body(answer, type(request), known, self._correlation_id)
            return decode(response, known, answer[body:])
        except CodecError as error:
            raise CommandError(f"{self.address}: the answer makes no sense: {error}") from None

    def close(self) -> None:
        """Close it, whatever is in flight."""
        self._socket.close()

    def _learn_versions(self) -> None:
        """The broker may be older than the newest form of this question. It says so in the oldest form of an answer."""
        for version in (3, 0):
            request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
            self._correlation_id += 1
            answer = self._exchange(encode_request_frame(request, version, self._correlation_id, CLIENT_ID))
            is_refused = answer[4:6] == struct.pack(">h", Error.UNSUPPORTED_VERSION)
            try:
                found = decode(ApiVersionsResponse, 0 if is_refused else version, answer[4:])
            except CodecError as error:
                raise CommandError(f"{self.address}: the answer makes no sense: {error}") from None
            if not is_refused:
                self._versions = {
                    each.api_key: (each.min_version, each.max_version) for each in found.api_keys
                }
                return
        raise CommandError(f"{self.address} reports no versions of its APIs: is it a Kafka?")

    def _exchange(self, frame: bytes) -> bytes:
        try:
            self._socket.sendall(frame)
            size = int.from_bytes(self._read(4), "big")
            if size > MAX_ANSWER_BYTES:
                raise CommandError(
                    f"{self.address} answers {size} bytes: is it a Kafka, and does it want TLS?"
                )
            return self._read(size)
        except OSError as error:
            raise CommandError(f"{self.address} doesn't answer: {_reason(error)}", UNREACHABLE) from None

    def _read(self, count: int) -> bytes:
        out = bytearray(count)
        view = memoryview(out)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise ConnectionResetError("it closed the connection")
            view = view[got:]
        return bytes(out)


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.get("ssl.ca.location") or None)
        if "ssl.certificate.location" in settings:
            context.load_cert_chain(
                settings["ssl.certificate.location"],
                settings.get("ssl.key.location"),
                settings.get("ssl.key.password"),
            )
    except (OSError, ssl.SSLError) as error:
        raise CommandUsageError(f"the files of ssl.* can't be used: {_reason(error)}") from None
    if settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__
