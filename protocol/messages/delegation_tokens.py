"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40) and
DescribeDelegationToken (41): KIP-48.

v2 flexible; Create and Describe: v3 owner and requester (KIP-373).
"""

from protocol.wire.schema import Message, Struct, array, binary, int16, int32, int64, string


class CreatableRenewers(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class CreateDelegationTokenRequest(Message, api_key=38, versions="1-3", flexible="2+"):
    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers, "0+")
    max_lifetime_ms: int = int64("0+")


class CreateDelegationTokenResponse(Message, api_key=38, versions="1-3", flexible="2+"):
    error_code: int = int16("0+")
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64("0+")
    expiry_timestamp_ms: int = int64("0+")
    max_timestamp_ms: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = binary("0+")
    throttle_time_ms: int = int32("0+")


class RenewDelegationTokenRequest(Message, api_key=39, versions="1-2", flexible="2+"):
    hmac: bytes = binary("0+")
    renew_period_ms: int = int64("0+")


class RenewDelegationTokenResponse(Message, api_key=39, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")


class ExpireDelegationTokenRequest(Message, api_key=40, versions="1-2", flexible="2+"):
    hmac: bytes = binary("0+")
    expiry_time_period_ms: int = int64("0+")


class ExpireDelegationTokenResponse(Message, api_key=40, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class DescribeDelegationTokenRequest(Message, api_key=41, versions="1-3", flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, "0+", nullable="0+"
    )


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class DescribedDelegationToken(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64("0+")
    expiry_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = binary("0+")
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer, "0+")


class DescribeDelegationTokenResponse(Message, api_key=41, versions="1-3", flexible="2+"):
    error_code: int = int16("0+")
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken, "0+")
    throttle_time_ms: int = int32("0+")
