"""DescribeClientQuotas (48) and AlterClientQuotas (49): KIP-546. v1 flexible."""

from protocol.wire.schema import Message, Struct, array, boolean, float64, int8, int16, int32, string


class ComponentData(Struct):
    """`match_type`: 0 the exact name, 1 the default entity, 2 any that is named."""

    entity_type: str = string("0+")
    match_type: int = int8("0+")
    match: str | None = string("0+", nullable="0+")


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = array(ComponentData, "0+")
    strict: bool = boolean("0+")


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class ValueData(Struct):
    key: str = string("0+")
    value: float = float64("0+")


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData, "0+")
    values: list[ValueData] = array(ValueData, "0+")


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entries: list[EntryData] | None = array(EntryData, "0+", nullable="0+")


class OpData(Struct):
    """`value` is meaningless where the key is removed."""

    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class AlterEntryData(Struct):
    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[AlterEntryData] = array(AlterEntryData, "0+")
    validate_only: bool = boolean("0+")


class AlterEntryResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entity: list[EntityData] = array(EntityData, "0+")


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+")
    entries: list[AlterEntryResult] = array(AlterEntryResult, "0+")
