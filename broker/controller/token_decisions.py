"""Delegation tokens (KIP-48, KIP-373): a request and the image become records and an answer, or an error.

Pure functions (Kafka: `DelegationTokenControlManager`). Times are in ms since 1970, by the controller's
clock. If a sum of times exceeds an int64, the largest int64 counts; Kafka's overflows when a token is
renewed.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import TypeAlias

from broker.controller.image import ClusterImage
from broker.controller.metadata_versions import METADATA_VERSION, TOKENS_NEED
from broker.controller.token_expiry import has_ended
from broker.security.authorizer import USER_TYPE, Principal
from broker.security.delegation_tokens import TokenSettings, principal_of_text
from protocol.errors import Error
from protocol.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from protocol.messages.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from protocol.waiting import Pause, turn
from protocol.wire.schema import Message

INT64_MAX = (1 << 63) - 1

Created: TypeAlias = tuple[list[Message], CreateDelegationTokenResponse]
Renewed: TypeAlias = tuple[list[Message], RenewDelegationTokenResponse]
Expired: TypeAlias = tuple[list[Message], ExpireDelegationTokenResponse]


def _refusal(image: ClusterImage, settings: TokenSettings | None) -> Error | None:
    """Return why no request for tokens can be served, or None."""
    if settings is None:
        return Error.DELEGATION_TOKEN_AUTH_DISABLED
    if image.features.get(METADATA_VERSION, 0) < TOKENS_NEED:
        return Error.UNSUPPORTED_VERSION
    return None


def _after(now_ms: int, duration_ms: int) -> int:
    return min(now_ms + duration_ms, INT64_MAX)


def created(
    image: ClusterImage,
    settings: TokenSettings | None,
    request: CreateDelegationTokenRequest,
    *,
    owner: Principal,
    requester: Principal,
    token_id: str,
    now_ms: int,
) -> Created:
    """Create a token of the owner at the requester's wish. Only the answer holds its secret."""
    answer = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )
    refusal = _refusal(image, settings)
    if refusal is None and any(each.principal_type != USER_TYPE for each in request.renewers):
        refusal = Error.INVALID_PRINCIPAL_TYPE
    if refusal is not None or settings is None:
        answer.error_code = refusal or 0
        return [], answer
    lifetime_ms = settings.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    latest = _after(now_ms, lifetime_ms)
    expiry = min(latest, _after(now_ms, settings.expiry_time_ms))
    answer.issue_timestamp_ms = now_ms
    answer.expiry_timestamp_ms = expiry
    answer.max_timestamp_ms = latest
    answer.token_id = token_id
    answer.hmac = settings.hmac_of(token_id)
    renewers = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
    return [_record(answer, renewers)], answer


def _record(made: CreateDelegationTokenResponse, renewers: list[str]) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=f"{made.principal_type}:{made.principal_name}",
        requester=f"{made.token_requester_principal_type}:{made.token_requester_principal_name}",
        renewers=renewers,
        issue_timestamp=made.issue_timestamp_ms,
        max_timestamp=made.max_timestamp_ms,
        expiration_timestamp=made.expiry_timestamp_ms,
        token_id=made.token_id,
    )


async def _found(
    image: ClusterImage, settings: TokenSettings | None, secret: bytes
) -> DelegationTokenRecord | Error:
    """Find the token with this secret. Every token's secret is compared, in constant time: the duration of
    the search gives nothing away about existing tokens."""
    refusal = _refusal(image, settings)
    if refusal is not None or settings is None:
        return refusal or Error.DELEGATION_TOKEN_AUTH_DISABLED
    found: DelegationTokenRecord | None = None
    pause = Pause()
    for record in [*image.kept.of_type(DelegationTokenRecord)]:
        if pause.is_due():
            await turn()
        assert isinstance(record, DelegationTokenRecord)
        if hmac.compare_digest(settings.hmac_of(record.token_id), secret):
            found = record
    return Error.DELEGATION_TOKEN_NOT_FOUND if found is None else found


def _may_renew(token: DelegationTokenRecord, asks: Principal) -> bool:
    """True for the owner and the renewers. The requester may not, unless it is one of them."""
    return asks in map(principal_of_text, (token.owner, *token.renewers))


def _until(token: DelegationTokenRecord, expiry_ms: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expiry_ms,
        token_id=token.token_id,
    )


async def renewed(
    image: ClusterImage,
    settings: TokenSettings | None,
    request: RenewDelegationTokenRequest,
    *,
    asks: Principal,
    now_ms: int,
) -> Renewed:
    """Move a token's expiry, later or sooner, but never past its maximum."""
    token = await _found(image, settings, bytes(request.hmac))
    if isinstance(token, Error) or settings is None:
        return [], RenewDelegationTokenResponse(error_code=int(token) if isinstance(token, Error) else 0)
    if has_ended(token, now_ms):
        return [], RenewDelegationTokenResponse(error_code=Error.DELEGATION_TOKEN_EXPIRED)
    if not _may_renew(token, asks):
        return [], RenewDelegationTokenResponse(error_code=Error.DELEGATION_TOKEN_OWNER_MISMATCH)
    period_ms = settings.expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    expiry = min(token.max_timestamp, _after(now_ms, period_ms))
    return [_until(token, expiry)], RenewDelegationTokenResponse(expiry_timestamp_ms=expiry)


async def expired(
    image: ClusterImage,
    settings: TokenSettings | None,
    request: ExpireDelegationTokenRequest,
    *,
    asks: Principal,
    now_ms: int,
) -> Expired:
    """Let a token expire after a while. A negative time removes it at once, even if it has already
    expired."""
    token = await _found(image, settings, bytes(request.hmac))
    if isinstance(token, Error):
        return [], ExpireDelegationTokenResponse(error_code=token)
    if not _may_renew(token, asks):
        return [], ExpireDelegationTokenResponse(error_code=Error.DELEGATION_TOKEN_OWNER_MISMATCH)
    if request.expiry_time_period_ms < 0:
        removed = RemoveDelegationTokenRecord(token_id=token.token_id)
        return [removed], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms)
    if has_ended(token, now_ms):
        return [], ExpireDelegationTokenResponse(error_code=Error.DELEGATION_TOKEN_EXPIRED)
    expiry = min(token.max_timestamp, _after(now_ms, request.expiry_time_period_ms))
    return [_until(token, expiry)], ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry)


def is_of(token: DelegationTokenRecord, principals: Iterable[Principal]) -> bool:
    """True if one of the principals owns the token, has requested it, or may renew it (Kafka:
    `ownerOrRenewer`)."""
    known = {*map(principal_of_text, (token.owner, token.requester, *token.renewers))}
    return not known.isdisjoint(principals)
