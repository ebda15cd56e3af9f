"""One module per API family. A handler is a function

    handle(server: Server, context: RequestContext, request) -> response | awaitable of one | None

It decides; where something has to change it appends records and applies them, with no await between a check and
the change that it guards. None means that nothing is answered (Produce with acks=0).

An API is served, and advertised in ApiVersions, by having a row here; its module is imported at its first request.
"""

HANDLERS: dict[int, str] = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    37: "create_partitions",
    60: "describe_cluster",
    75: "describe_topic_partitions",
}
