"""Validating the tokens of one listener by its settings, and fetching keys periodically."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Protocol

from broker.environment.threads import hold_thread, in_thread_of_its_own
from broker.security.oauthbearer import TokenValidator, UnsecuredTokens

JWKS_FAILED = "the keys that verify tokens at listener {} aren't available: {}"


class TokenSourceError(Exception):
    """A listener can't validate tokens. The text says why."""


class Wanted(Protocol):
    """The settings that are used here (`broker.config.broker_config.TokenConfig`)."""

    @property
    def options(self) -> Mapping[str, str]: ...
    @property
    def jwks_url(self) -> str | None: ...
    @property
    def refresh_ms(self) -> int: ...
    @property
    def backoff_ms(self) -> int: ...
    @property
    def backoff_max_ms(self) -> int: ...
    @property
    def audiences(self) -> frozenset[str]: ...
    @property
    def issuer(self) -> str | None: ...
    @property
    def skew_s(self) -> int: ...
    @property
    def scope_claim(self) -> str: ...
    @property
    def user_claim(self) -> str: ...


class Timers(Protocol):
    """The node's timers, as far as they are used here."""

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None: ...


class TokenSource:
    """Validates the tokens of one listener."""

    def __init__(self, validate: TokenValidator, refresh: Callable[[], None] | None, refresh_ms: int) -> None:
        """`refresh` fetches the keys again. None if they aren't fetched."""
        self._validate = validate
        self._refresh = refresh
        self._refresh_ms = refresh_ms

    @classmethod
    async def opened(
        cls, listener_name: str, wanted: Wanted, monotonic_s: Callable[[], float]
    ) -> TokenSource:
        """Return a source once a thread has fetched the keys. Raises TokenSourceError."""
        if wanted.jwks_url is None:
            return cls(UnsecuredTokens(wanted.options), None, 0)
        try:
            import joserfc.jws  # noqa: F401 - what it is verified by, before anything else is tried
        except ModuleNotFoundError as error:
            raise TokenSourceError(
                f"signed tokens at listener {listener_name} need a package: pip install 'barnabas[security]' "
                f"({error.name} is missing)"
            ) from None
        from broker.security import signed_tokens

        settings = signed_tokens.SignedTokenSettings(
            wanted.audiences, wanted.issuer, wanted.skew_s, wanted.scope_claim, wanted.user_claim
        )
        try:
            if wanted.jwks_url.startswith("file:"):
                in_file = signed_tokens.FileKeys(signed_tokens.file_of(wanted.jwks_url))
                return cls(signed_tokens.SignedTokens(settings, in_file), None, 0)
            make = partial(
                signed_tokens.FetchedKeys,
                partial(signed_tokens.fetched, wanted.jwks_url, monotonic_s),
                backoff_ms=wanted.backoff_ms,
                backoff_max_ms=wanted.backoff_max_ms,
                in_thread=in_thread_of_its_own,
                sleep=hold_thread,
            )
            keys = await asyncio.to_thread(make)
        except signed_tokens.JwksError as error:
            raise TokenSourceError(JWKS_FAILED.format(listener_name, error)) from None
        return cls(signed_tokens.SignedTokens(settings, keys), keys.refresh, wanted.refresh_ms)

    def validating(self, timers: Timers) -> TokenValidator:
        """Return the validator. From now on, keys are fetched periodically."""
        if self._refresh is not None:
            self._again(timers)
        return self._validate

    def _again(self, timers: Timers) -> None:
        def due() -> None:
            assert self._refresh is not None
            self._refresh()
            self._again(timers)

        timers.schedule(self, self._refresh_ms, due)
