"""Who asks: bearer tokens `mw_<token id>_<secret>`, roles, and what each may see.

A secret has 256 random bits, so its SHA-256 is kept (a slow hash protects weak secrets; these are not) and compared in
constant time. A token's row is remembered for a second: a revocation takes effect within that, anywhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import random
import re
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Protocol

from makeway_admission.errors import ProblemCode, Refused, SettingsRefused, refused

TOKEN_PATTERN: Final = re.compile(r"mw_([0-9a-z]{1,32})_([A-Za-z0-9_-]{20,200})")
REMEMBERED_SECONDS: Final = 1.0
_MOST_REMEMBERED: Final = 4096
_SPREAD_SECONDS: Final = 0.1
_ID_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"


class Role(StrEnum):
    """What a token may do, each more than the one before; a node's token opens only that node's channel."""

    NODE = "node"
    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"


_RANK: Final = {Role.NODE: 0, Role.VIEWER: 1, Role.SUBMITTER: 2, Role.ADMIN: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Whoever holds a valid token. `team` None: every team; `classes` None: every class; `expires_at` None: never."""

    token_id: str
    name: str
    role: Role
    team: str | None = None
    node: str | None = None
    classes: frozenset[str] | None = None
    expires_at: datetime | None = None

    def sees(self, team: str) -> bool:
        """Whether the team's jobs exist for this token."""
        return self.team is None or self.team == team


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token as it is stored."""

    principal: Principal
    secret_hash: bytes
    expires_at: datetime | None
    revoked_at: datetime | None

    def is_good(self, secret: str, now: datetime) -> bool:
        """Whether the secret is this token's, and the token is in force."""
        same = hmac.compare_digest(hash_of(secret), self.secret_hash)
        expired = self.expires_at is not None and self.expires_at <= now
        return same and not expired and self.revoked_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token that nobody has yet. `text` is shown once."""

    token_id: str
    text: str
    secret_hash: bytes


class TokenSource(Protocol):
    """Where the rows of tokens are."""

    async def find_token(self, token_id: str) -> TokenRow | None:
        """The token's row, revoked or not; None where there is none."""
        ...


class Access:
    """Checks tokens, with a short memory."""

    def __init__(self, tokens: TokenSource) -> None:
        """Nothing is remembered yet."""
        self._tokens = tokens
        self._rows: OrderedDict[str, tuple[float, TokenRow | None]] = OrderedDict()

    async def principal(self, authorization: str | None) -> Principal:
        """Who holds the token of an Authorization header. Raises Refused (401)."""
        scheme, _, text = (authorization or "").partition(" ")
        match = TOKEN_PATTERN.fullmatch(text.strip()) if scheme.lower() == "bearer" else None
        if match is None:
            raise _unauthenticated("send Authorization: Bearer mw_..." if not authorization else "this is no token")
        row = await self._row(match[1])
        if row is None or not row.is_good(match[2], datetime.now(UTC)):
            raise _unauthenticated("the token is unknown, revoked or expired")
        return row.principal

    async def until_refused(self, authorization: str | None) -> Refused:
        """Returns the refusal once the token of an Authorization header is no longer good, within about a second.

        It asks when what is remembered of the token has become old, so streams of one token share most of the asking.
        """
        while True:
            try:
                principal = await self.principal(authorization)
            except Refused as refusal:
                return refusal
            await asyncio.sleep(self._good_for_seconds(principal))

    def forget(self, token_id: str) -> None:
        """Looks the token up again at its next use."""
        self._rows.pop(token_id, None)

    def _good_for_seconds(self, principal: Principal) -> float:
        """How long nothing new can be known of a token that was good just now."""
        remembered = self._rows.get(principal.token_id)
        read_at = time.monotonic() if remembered is None else remembered[0]
        # Spread, so that the first of many who wait asks and the others find what it was told.
        seconds = read_at + REMEMBERED_SECONDS - time.monotonic() + random.uniform(0, _SPREAD_SECONDS)  # noqa: S311
        if principal.expires_at is not None:
            seconds = min(seconds, (principal.expires_at - datetime.now(UTC)).total_seconds())
        return max(0.0, seconds)

    async def _row(self, token_id: str) -> TokenRow | None:
        now = time.monotonic()
        remembered = self._rows.get(token_id)
        if remembered is not None and now - remembered[0] < REMEMBERED_SECONDS:
            return remembered[1]
        row = await self._tokens.find_token(token_id)
        self._rows[token_id] = (now, row)
        self._rows.move_to_end(token_id)
        if len(self._rows) > _MOST_REMEMBERED:
            self._rows.popitem(last=False)
        return row


def require(principal: Principal, role: Role) -> None:
    """Raises Refused (403) when the token's role is less than `role`."""
    if _RANK[principal.role] < _RANK[role]:
        raise refused(ProblemCode.FORBIDDEN, f"this needs the role {role}; the token has {principal.role}")


def require_all(principal: Principal, what: str) -> None:
    """Raises Refused (403) for a token that is bound to a team or to classes: `what` concerns everybody's work."""
    if principal.team is not None:
        raise refused(ProblemCode.FORBIDDEN, f"{what} needs an admin of all teams; the token is of {principal.team}")
    if principal.classes is not None:
        raise refused(ProblemCode.FORBIDDEN, f"{what} needs an admin of all classes; {_bound(principal.classes)}")


def require_class(principal: Principal, class_name: str, what: str) -> None:
    """Raises Refused (403) for a token that is bound to other classes."""
    if principal.classes is not None and class_name not in principal.classes:
        raise refused(ProblemCode.FORBIDDEN, f"{what} a job of class {class_name}: {_bound(principal.classes)}")


def _bound(classes: frozenset[str]) -> str:
    return f"the token is bound to the classes {', '.join(sorted(classes)) or 'none'}"


def hash_of(secret: str) -> bytes:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).digest()


def new_token() -> NewToken:
    """A fresh token."""
    token_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(12))
    secret = secrets.token_urlsafe(32)
    return NewToken(token_id=token_id, text=f"mw_{token_id}_{secret}", secret_hash=hash_of(secret))


def given_token(text: str, *, name: str) -> NewToken:
    """A token that a setting gives. Raises SettingsRefused when it has another form; the text is never repeated."""
    match = TOKEN_PATTERN.fullmatch(text)
    if match is None:
        raise SettingsRefused(f"{name} must look like mw_<token id>_<secret of 20 characters or more>")
    return NewToken(token_id=match[1], text=text, secret_hash=hash_of(match[2]))


def _unauthenticated(detail: str) -> Exception:
    return refused(ProblemCode.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": 'Bearer realm="makeway"'})
