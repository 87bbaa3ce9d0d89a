"""Which database errors pass by themselves."""

from __future__ import annotations

from typing import Final

import asyncpg

from makeway_runtime import retry

_TRANSIENT_STATES: Final = frozenset(
    {
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
        "55P03",  # lock_not_available
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now
        "25P03",  # idle_in_transaction_session_timeout
        "57014",  # query_canceled: a statement_timeout
    }
)
_TRANSIENT_CLASSES: Final = ("08", "53")  # connection exceptions, insufficient resources
_LOST_STATES: Final = frozenset({"57P01", "57P02", "57P03", "25P03"})


def is_transient(error: BaseException) -> bool:
    """True when the whole transaction may be tried again later. False for CommitUncertain: look before repeating."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state in _TRANSIENT_STATES or state.startswith(_TRANSIENT_CLASSES)
    return is_connection_lost(error) or retry.is_transient(error)


def is_connection_lost(error: BaseException) -> bool:
    """True when the session is gone or its state unknown, so that nothing is known of the statement at hand."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state in _LOST_STATES or state.startswith("08")
    # asyncpg says "connection is closed" and "connection was closed in the middle of operation" by this class.
    return isinstance(error, (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError))
