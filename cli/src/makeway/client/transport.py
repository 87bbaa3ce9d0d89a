"""Requests that outlive short outages.

Every request here may be repeated, since a submit always carries its Idempotency-Key, so whatever fails is repeated
with growing, jittered pauses until the patience is used up. The loop is our own because it is a page, and a retry
library costs the command a tenth of its start-up time.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx
from makeway_schemas.api import Problem
from pydantic import ValidationError

from makeway.errors import NoContact, Refused

OUTAGE_STATUS: Final = frozenset({500, 502, 503, 504})
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 5.0
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """Seconds without contact before giving up: until the first answer, and once something has answered."""

    first_seconds: float = 5.0
    later_seconds: float = 60.0


class Unavailable(Exception):
    """An answer that says "not now"; kept inside the client, which tries again."""

    def __init__(self, status: int, reason: str, pause_seconds: float) -> None:
        self.status = status
        self.pause_seconds = pause_seconds
        super().__init__(f"HTTP {status} {reason}".rstrip())


OUTAGE_ERRORS: Final = (httpx.TransportError, Unavailable)


class Outage:
    """Counts one outage from its first failure and paces the tries."""

    def __init__(self, url: str, patience: Patience) -> None:
        self._url = url
        self._patience = patience
        self._had_contact = False
        self._since: float | None = None
        self._pause_seconds = _FIRST_PAUSE_SECONDS

    def over(self) -> None:
        """Something answered."""
        self._had_contact = True
        self._since = None
        self._pause_seconds = _FIRST_PAUSE_SECONDS

    def pause(self, error: Exception) -> None:
        """Waits before the next try. Raises NoContact when the patience is used up or trying again is no use."""
        now = time.monotonic()
        since = self._since = self._since if self._since is not None else now
        limit = self._patience.later_seconds if self._had_contact else self._patience.first_seconds
        if now - since >= limit or isinstance(error, httpx.UnsupportedProtocol):
            raise NoContact(self._url, str(error) or type(error).__name__, now - since) from error
        asked = error.pause_seconds if isinstance(error, Unavailable) else 0.0
        jittered = self._pause_seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads clients, guards nothing
        time.sleep(min(max(asked, jittered), max(0.0, since + limit - now)))
        self._pause_seconds = min(self._pause_seconds * 2, _LONGEST_PAUSE_SECONDS)


class Transport:
    """One HTTP connection pool with the bearer token and the retries."""

    def __init__(self, url: str, token: str, patience: Patience) -> None:
        self.url = url
        self.outage = Outage(url, patience)
        loopback = urlsplit(url).hostname in _LOOPBACK
        # No proxy lies between a user and the loopback; and loading the CA bundle for plain HTTP costs 20 ms a start.
        plain = httpx.HTTPTransport(verify=False) if urlsplit(url).scheme == "http" and loopback else None
        self._http = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(30.0, connect=_CONNECT_SECONDS),
            transport=plain,
            trust_env=not loopback,
        )

    def close(self) -> None:
        """Closes the pool."""
        self._http.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A good answer, tried again over outages. Raises Refused or NoContact."""

        def attempt() -> httpx.Response:
            response = self._http.request(method, path, **options)
            _check(response)
            return response

        return self.persist(attempt)

    @contextmanager
    def stream(
        self, path: str, params: dict[str, str], *, headers: dict[str, str], idle_seconds: float
    ) -> Iterator[httpx.Response]:
        """One streamed GET, not repeated; reading raises httpx.ReadTimeout after ``idle_seconds`` of silence."""
        timeout = httpx.Timeout(idle_seconds, connect=_CONNECT_SECONDS)
        with self._http.stream("GET", path, params=params, timeout=timeout, headers=headers) as response:
            if response.status_code >= 300:
                response.read()
            _check(response)
            yield response

    def persist(self, attempt: Callable[[], _T]) -> _T:
        """Calls until it works, is refused, or the patience for an outage is used up."""
        while True:
            try:
                result = attempt()
            except Refused:
                self.outage.over()
                raise
            except OUTAGE_ERRORS as error:
                self.outage.pause(error)
            else:
                self.outage.over()
                return result


def _check(response: httpx.Response) -> None:
    if response.status_code < 300:
        return
    problem = _problem(response)
    # A full queue is an answer; a rate limit, which has no code of ours or is about streams, passes.
    limited = response.status_code == 429 and problem.code in ("http_429", "too_many_streams")
    if limited or response.status_code in OUTAGE_STATUS:
        raise Unavailable(response.status_code, response.reason_phrase, _retry_after_seconds(response))
    raise Refused(problem)


def _retry_after_seconds(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return min(float(text), 60.0) if text.isascii() and text.isdigit() else 0.0


def _problem(response: httpx.Response) -> Problem:
    """The problem details of a refusal; an answer that has none (a proxy's page, another server) becomes one."""
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        status, phrase = response.status_code, response.reason_phrase
        return Problem(title=f"HTTP {status} {phrase}".rstrip(), status=status, code=f"http_{status}")
