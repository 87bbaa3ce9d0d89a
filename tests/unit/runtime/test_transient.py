"""What a database error means: nothing happened and it may pass, nobody knows what happened, or it stays so."""

import asyncpg
import pytest
from makeway_runtime.errors import CommitUncertain, TransientError
from makeway_runtime.postgres.transient import is_connection_lost, is_transient


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.AdminShutdownError("57P01"),
        asyncpg.CrashShutdownError("57P02"),
        asyncpg.CannotConnectNowError("57P03"),
        asyncpg.IdleInTransactionSessionTimeoutError("25P03"),
        asyncpg.ConnectionDoesNotExistError("08003"),
        asyncpg.InterfaceError("connection is closed"),
        ConnectionResetError(),
        TimeoutError(),
    ],
    ids=repr,
)
def test_after_a_session_that_ended_nobody_knows_what_was_committed(error: Exception) -> None:
    assert is_connection_lost(error)
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.DeadlockDetectedError("40P01"),
        asyncpg.SerializationError("40001"),
        asyncpg.LockNotAvailableError("55P03"),
        asyncpg.QueryCanceledError("57014"),
        asyncpg.TooManyConnectionsError("53300"),
        asyncpg.DiskFullError("53100"),
        TransientError("later"),
    ],
    ids=repr,
)
def test_what_was_rolled_back_may_be_tried_again(error: Exception) -> None:
    assert is_transient(error)
    assert not is_connection_lost(error)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.UniqueViolationError("23505"),
        asyncpg.CheckViolationError("23514"),
        asyncpg.InvalidPasswordError("28P01"),
        asyncpg.PostgresSyntaxError("42601"),
        CommitUncertain("the answer was lost"),
        ValueError("bug"),
    ],
    ids=repr,
)
def test_what_stays_so_is_not_tried_again(error: Exception) -> None:
    assert not is_transient(error)
    assert not is_connection_lost(error)
