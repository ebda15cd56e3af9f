"""ApiVersions: the APIs that it lists, and its answers to wrong versions and names."""

from __future__ import annotations

import struct

from ..frames import header
from ..play import Play, script, versions

NAMES = ("a", "librdkafka", "a.b-c_d", "A1", "")
BAD_NAMES = ("-a", ".a", "a-", "a.", "a b", "ä", "a/b", " ", "a\n", "_a", "a_", "a" * 1000)


@script
def every_version(play: Play) -> None:
    for version in versions("ApiVersions"):
        asked = {"client_software_name": "compare", "client_software_version": "1.0"}
        play.ask(f"v{version}", "ApiVersions", version, asked)


@script
def other_versions(play: Play) -> None:
    """An unknown version is answered in version 0, with the range of known versions (KIP-511)."""
    for version in (5, 6, 99, 32767, -1, -32768):
        body = b"\x08compare\x041.0\x00"
        play.raw_frame(f"v{version}", header(18, version, 7) + body, on="other")
    play.raw_frame("v99 with no body", header(18, 99, 8), on="other")
    play.raw_frame("v99 with no client id", struct.pack(">hhi", 18, 99, 9), on="other")
    play.raw_frame("v99 with half a header", struct.pack(">hh", 18, 99))
    play.ask(
        "the connection is served on",
        "ApiVersions",
        4,
        {"client_software_name": "a", "client_software_version": "b"},
        on="other",
    )


@script
def software_names(play: Play) -> None:
    for version in (3, 4):
        for name in (*NAMES, *BAD_NAMES):
            shown = name if len(name) < 20 else f"{len(name)} letters"
            asked = {"client_software_name": name, "client_software_version": "1.0"}
            play.ask(f"name {shown!r} (v{version})", "ApiVersions", version, asked)
            asked = {"client_software_name": "name", "client_software_version": name}
            play.ask(f"version {shown!r} (v{version})", "ApiVersions", version, asked)
    play.ask("the connection is served on", "ApiVersions", 0, {})


@script
def any_time(play: Play) -> None:
    """ApiVersions doesn't have to be the first request, nor the only one."""
    play.ask("a Metadata first", "Metadata", 9, {"topics": []})
    play.ask(
        "then ApiVersions", "ApiVersions", 3, {"client_software_name": "a", "client_software_version": "b"}
    )
    play.ask(
        "and again with another name",
        "ApiVersions",
        3,
        {"client_software_name": "c", "client_software_version": "d"},
    )
