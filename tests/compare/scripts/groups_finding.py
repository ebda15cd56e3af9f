"""FindCoordinator: key types, versions, several keys."""

from __future__ import annotations

from ..group_requests import coordinator_is_there
from ..play import Play, script, versions


@script
def finding(play: Play) -> None:
    group = play.name("g")
    coordinator_is_there(play, group)
    for version in versions("FindCoordinator"):
        if version < 4:
            play.ask(f"a group (v{version})", "FindCoordinator", version, {"key": group, "key_type": 0})
            play.ask(f"the empty key (v{version})", "FindCoordinator", version, {"key": "", "key_type": 0})
        else:
            fields = {"key_type": 0, "coordinator_keys": [group, "", "ü", "\U0001f600", group]}
            play.ask(f"several groups (v{version})", "FindCoordinator", version, fields)
            fields["coordinator_keys"] = []
            play.ask(f"no keys (v{version})", "FindCoordinator", version, fields)
    for version in (1, 2, 3):
        for key_type in (2, 3, -1):
            play.ask(
                f"key type {key_type} (v{version})",
                "FindCoordinator",
                version,
                {"key": group, "key_type": key_type},
            )
    for version in (4, 5, 6):
        for key_type in (2, 3, -1):
            play.ask(
                f"key type {key_type} (v{version})",
                "FindCoordinator",
                version,
                {"key_type": key_type, "coordinator_keys": [group, "a:b:c"]},
            )
