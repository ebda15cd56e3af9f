"""Identities of clients, and their rights: SASL, SCRAM credentials, delegation tokens, ACLs."""

from __future__ import annotations

from protocol.wire.schema import Message, Struct, array, binary, int8, int16, int32, int64, string

# ---- SaslHandshake (17) and SaslAuthenticate (36)
#
# SaslHandshake: v1 is followed by SaslAuthenticate requests, v0 by bare tokens (KIP-152). SaslAuthenticate: v1 the
# session's lifetime (KIP-368), v2 flexible.


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = binary("0+")


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)


# ---- DescribeUserScramCredentials (50) and AlterUserScramCredentials (51): KIP-554
#
# Mechanisms: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.


class UserName(Struct):
    name: str = string("0+")


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = array(UserName, "0+", nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = int8("0+")
    iterations: int = int32("0+")


class DescribeUserScramCredentialsResult(Struct):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo, "0+")


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult, "0+")


class ScramCredentialDeletion(Struct):
    name: str = string("0+")
    mechanism: int = int8("0+")


class ScramCredentialUpsertion(Struct):
    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: bytes = binary("0+")
    salted_password: bytes = binary("0+")


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, "0+")
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, "0+")


class AlterUserScramCredentialsResult(Struct):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult, "0+")


# ---- CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40), DescribeDelegationToken (41)
#
# KIP-48. v2 flexible; Create and Describe: v3 owner and requester (KIP-373).


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


# ---- DescribeAcls (29), CreateAcls (30) and DeleteAcls (31)
#
# v1 pattern types (KIP-290), v2 flexible, v3 the resource type USER (KIP-373). Types, operations and permissions are
# the codes of Kafka's ResourceType, PatternType, AclOperation and AclPermissionType.


class DescribeAclsRequest(Message, api_key=29, versions="1-3", flexible="2+"):
    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class AclDescription(Struct):
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DescribeAclsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array(AclDescription, "0+")


class DescribeAclsResponse(Message, api_key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, "0+")


class AclCreation(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class CreateAclsRequest(Message, api_key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = array(AclCreation, "0+")


class AclCreationResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[AclCreationResult] = array(AclCreationResult, "0+")


class DeleteAclsFilter(Struct):
    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DeleteAclsRequest(Message, api_key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, "0+")


class DeleteAclsMatchingAcl(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DeleteAclsFilterResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, "0+")


class DeleteAclsResponse(Message, api_key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult, "0+")
