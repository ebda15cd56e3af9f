"""DeleteTopics, and what a deleted topic leaves behind."""

from __future__ import annotations

from typing import Any

from ..batches import batch
from ..play import Play, script, versions
from ..requests import UNKNOWN_ID, ZERO_ID, create_topics, fetch, list_offsets, metadata, produce
from ..scene import Topic


def deletion(
    *names: str | Topic | bytes | tuple[str | None, bytes], timeout_ms: int = 20_000
) -> dict[str, Any]:
    topics: list[dict[str, Any]] = []
    for name in names:
        if isinstance(name, Topic):
            topics.append({"name": name.name})
        elif isinstance(name, bytes):
            topics.append({"name": None, "topic_id": name})
        elif isinstance(name, tuple):
            topics.append({"name": name[0], "topic_id": name[1]})
        else:
            topics.append({"name": name})
    return {
        "topics": topics,
        "topic_names": [t["name"] for t in topics if t["name"] is not None],
        "timeout_ms": timeout_ms,
    }


@script
def delete_in_every_version(play: Play) -> None:
    for version in versions("DeleteTopics"):
        a, b = play.topic(f"v{version}-a"), play.topic(f"v{version}-b")
        play.ask(f"two and an unknown one (v{version})", "DeleteTopics", version, deletion(a, "nowhere", b))
        play.ask(f"again (v{version})", "DeleteTopics", version, deletion(a))
        play.ask(f"none (v{version})", "DeleteTopics", version, deletion())
        play.ask(f"a bad name (v{version})", "DeleteTopics", version, deletion("a/b", ""))
        play.ask(f"the metadata log (v{version})", "DeleteTopics", version, deletion("__cluster_metadata"))
        c = play.topic(f"v{version}-c")
        play.ask(f"a name twice (v{version})", "DeleteTopics", version, deletion(c, c))
        play.ask(
            f"an unknown name twice (v{version})", "DeleteTopics", version, deletion("nowhere", "nowhere")
        )
        play.until_gone(a.name, b.name)
        play.ask(f"what is left (v{version})", "Metadata", 12, metadata(a.name, b.name, c.name))


@script
def delete_by_id(play: Play) -> None:
    a, b, c, d = (play.topic(suffix) for suffix in "abcd")
    for case, asked in {
        "an unknown id": deletion(UNKNOWN_ID),
        "an unknown id twice": deletion(UNKNOWN_ID, UNKNOWN_ID),
        "neither": deletion(ZERO_ID),
        "neither, twice": deletion(ZERO_ID, ZERO_ID),
        "both, of one topic": deletion((a.name, a.topic_id)),
        "both, of two topics": deletion((a.name, b.topic_id)),
        "a name and an id of one topic in two entries": deletion(a, a.topic_id),
        "an id twice": deletion(b.topic_id, b.topic_id),
        "nothing was deleted so far, and c is": deletion(c.topic_id),
        "c again": deletion(c.topic_id),
        "c again by name": deletion(c),
        "good and bad ones": deletion(UNKNOWN_ID, "nowhere", d.topic_id, (a.name, a.topic_id), ZERO_ID),
    }.items():
        play.ask(case, "DeleteTopics", 6, asked)
    play.until_gone(c.name, d.name)
    play.ask("what is left", "Metadata", 12, metadata(a.name, b.name, c.name, d.name))


@script
def deleted_and_created_again(play: Play) -> None:
    old = play.topic("a", 2)
    play.write(old.name, batch(3))
    play.ask("deleted", "DeleteTopics", 6, deletion(old))
    play.until_gone(old.name)
    play.ask("created again", "CreateTopics", 7, create_topics({"name": old.name, "num_partitions": 1}))
    play.until_there(old.name)
    play.ask("its end", "ListOffsets", 7, list_offsets((old.name, 0, -1)))
    play.ask("the partition that is no more", "ListOffsets", 7, list_offsets((old.name, 1, -1)))
    play.ask("by the old id", "Metadata", 12, metadata(ids=[old.topic_id]))
    play.ask("by its name", "Metadata", 12, metadata(old.name))
    play.ask("a batch for the old id", "Produce", 13, produce((old, 0, batch())))
    play.ask("a batch for the name", "Produce", 12, produce((old, 0, batch())))
    play.ask("a fetch by the old id", "Fetch", 13, fetch((old, 0, 0)))
    play.ask("a fetch by the name", "Fetch", 12, fetch((old, 0, 0)))
