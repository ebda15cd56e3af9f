"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51): KIP-554.

Mechanisms: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
"""

from protocol.wire.schema import Message, Struct, array, binary, int8, int16, int32, string


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
