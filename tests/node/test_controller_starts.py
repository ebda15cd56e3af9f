"""How a controller's run begins and ends: who votes in its quorum, and what its disk may refuse."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from broker.config.definitions import StartError
from broker.process.format_command import format_command
from protocol.errors import Error
from protocol.messages.cluster_admin import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.node.controllers import NODE, PlayedBroker, connected, controller, create, started
from tests.support.disk import files


@pytest.mark.parametrize("named", [True, False])
async def test_voters_stand_in_the_log_unless_settings_name_them(tmp_path: Path, named: bool) -> None:
    settings = [f"controller.quorum.voters={NODE}@127.0.0.1:9"] if named else []
    async with controller(tmp_path, *settings) as node:
        quorum = node.metadata.quorum
        assert quorum.kraft_version == (0 if named else 1)
        port = node.endpoints.first_advertised[1]
    if named:
        return
    assert quorum.voters is not None
    (voter,) = quorum.voters.voters
    assert (voter.voter_id, voter.endpoints[0].port) == (NODE, port)
    again = await started(tmp_path)  # at another port
    try:
        assert again.metadata.quorum.voters is not None
        (moved,) = again.metadata.quorum.voters.voters
        assert moved.endpoints[0].port == again.endpoints.first_advertised[1] != port
        assert moved.voter_directory_id == voter.voter_directory_id
    finally:
        await again.stop()


async def test_the_voter_moves_into_the_log_at_kraft_version_1(tmp_path: Path) -> None:
    """From then on the settings that name the voters change nothing, and the voter's endpoint is that of the newest
    start."""
    named = f"controller.quorum.voters={NODE}@127.0.0.1:9"
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
    async with controller(tmp_path, named) as node:
        quorum, end = node.metadata.quorum, node.metadata.next_offset
        validated = UpdateFeaturesRequest(feature_updates=[update], validate_only=True)
        answer = await connected(node).answer(validated, 2)
        assert (answer.error_code, quorum.kraft_version) == (Error.NONE, 0)
        assert node.metadata.next_offset == end
        answer = await connected(node).answer(UpdateFeaturesRequest(feature_updates=[update]), 2)
        assert (answer.error_code, quorum.kraft_version) == (Error.NONE, 1)
        assert node.metadata.log.high_watermark == end + 3  # the version, the voters, and what is waited for
        assert quorum.voters is not None
        (voter,) = quorum.voters.voters
        assert (voter.voter_id, voter.endpoints[0].port) == (NODE, node.endpoints.first_advertised[1])
    async with controller(tmp_path, named) as again:
        assert again.metadata.quorum.kraft_version == 1
        assert again.metadata.quorum.voters is not None
        (found,) = again.metadata.quorum.voters.voters
        assert found.voter_directory_id == voter.voter_directory_id
        assert found.endpoints[0].port == again.endpoints.first_advertised[1]
    state = json.loads((tmp_path / "__cluster_metadata-0/quorum-state").read_bytes())
    assert state["data_version"] == 1


async def test_the_first_start_on_a_formatted_folder_speaks_of_no_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There is a snapshot of the metadata, and no log: nothing was stopped, and there is nothing to check."""
    folder, properties = tmp_path / "data", tmp_path / "controller.properties"
    lines = [
        "process.roles=controller",
        f"node.id={NODE}",
        "listeners=CONTROLLER://127.0.0.1:0",
        "controller.listener.names=CONTROLLER",
        f"controller.quorum.voters={NODE}@127.0.0.1:9",
        f"log.dirs={folder}",
    ]
    properties.write_text("".join(f"{line}\n" for line in lines))
    assert format_command(["-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(properties)]) == 0
    async with controller(folder, lines[4]):
        pass
    assert not [record for record in caplog.records if "shut down cleanly" in record.message]
    (folder / ".kafka_cleanshutdown").unlink()
    async with controller(folder, lines[4]):
        pass
    assert [record for record in caplog.records if "shut down cleanly" in record.message]


@pytest.mark.parametrize("others", [[], [7]])
async def test_a_controller_leads_only_where_nobody_else_votes(tmp_path: Path, others: list[int]) -> None:
    folder, properties = tmp_path / "data", tmp_path / "controller.properties"
    voters = ",".join(f"{each}@127.0.0.1:{each}:{'A' * 20}{each % 10}A" for each in [NODE, *others])
    lines = [
        "process.roles=controller",
        f"node.id={NODE}",
        "controller.listener.names=CONTROLLER",
        "listeners=CONTROLLER://127.0.0.1:0",
        "controller.quorum.bootstrap.servers=127.0.0.1:9",
        f"log.dirs={folder}",
    ]
    properties.write_text("\n".join(lines))
    assert not format_command(["-t", "A" * 22, "-c", str(properties), "--initial-controllers", voters])
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    if others:
        with pytest.raises(StartError, match=r"names another controller that votes \(node 7\)"):
            await started(folder)
        assert (
            before.items()
            <= {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}.items()
        )
        return
    node = await started(folder)
    assert node.metadata.is_leader
    await node.stop()


async def test_settings_that_were_altered_are_in_force_after_a_restart(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        altered = IncrementalAlterableConfig(name="max.connections", config_operation=0, value="7")
        of_all = IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=[altered])
        request = IncrementalAlterConfigsRequest(resources=[of_all])
        answer = await connected(node).answer(request, 1)
        assert [each.error_code for each in answer.responses] == [0]
        assert node.config.get_int("max.connections") == 7
    async with controller(tmp_path) as node:
        assert node.config.get_int("max.connections") == 7


async def test_a_controller_stops_if_its_disk_refuses_its_decisions(tmp_path: Path) -> None:
    """It no longer knows which brokers it had heard from and fenced: those records are lost."""
    node = await started(tmp_path)
    await PlayedBroker(node, 2).start()

    def refuse(name: str, path: str, size: int) -> None:
        if name == "sync" and "__cluster_metadata-0/" in path:
            raise OSError(errno.EIO, "refused", path)

    files.set_fault_hook(refuse)
    try:
        assert await create(connected(node), "t") is Error.KAFKA_STORAGE_ERROR
        await node.stopped.wait()
        await node.stop()
    finally:
        files.set_fault_hook(None)
    assert "refused" in str(node.failure)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again = await started(tmp_path)
    assert [*again.metadata.image.brokers] == [2]
    await again.stop()
