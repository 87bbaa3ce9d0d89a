"""The intent: what C reads in a few lines, and what an agent reads back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from makeway_executor.errors import InvalidIntent
from makeway_executor.intent import MAX_INTENT_BYTES, Intent, read_kept


def intent(**fields: Any) -> Intent:
    defaults: dict[str, Any] = {
        "run_id": "r",
        "key": "k",
        "boot_id": "b",
        "control_path": "/c",
        "working_dir": "/",
        "command": ("true",),
    }
    return Intent(**{**defaults, **fields})


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(texts, texts, st.lists(texts), st.none() | texts)
def test_what_an_agent_needs_comes_back(key: str, planned: str, command: list[str], cgroup: str | None) -> None:
    content = intent(key=key, planned=planned, command=tuple(command), cgroup=cgroup).to_bytes()
    kept = read_kept(content)
    assert (kept.key, kept.planned, kept.cgroup, kept.boot_id) == (key, planned, cgroup, "b")


def test_a_nul_is_refused_with_the_name_of_the_field() -> None:
    with pytest.raises(InvalidIntent, match="env holds a NUL"):
        intent(env={"A": "x\0y"}).to_bytes()


def test_what_is_too_large_is_refused_with_the_limit() -> None:
    with pytest.raises(InvalidIntent, match=str(MAX_INTENT_BYTES)):
        intent(command=("x" * MAX_INTENT_BYTES,)).to_bytes()


@pytest.mark.parametrize("content", [b"", b"run_id\0x", b"run_id\0x\0"])
def test_what_was_cut_off_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidIntent):
        read_kept(content)


def test_durations_are_told_in_milliseconds() -> None:
    content = intent(time_limit_seconds=1.5, time_limit_grace_seconds=0.25).to_bytes()
    assert b"time_limit_ms\x001500\0" in content
    assert b"time_limit_grace_ms\x00250\0" in content
    assert b"time_limit_ms" not in intent().to_bytes()
