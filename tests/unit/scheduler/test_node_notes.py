"""Whose word keeps a node closed, and why: the newest reason of each kind is kept until it is taken back."""

from datetime import UTC, datetime

from makeway_scheduler.node_notes import CORDONED, DECLARED_DEAD, DRAINED, when_heard, when_opened, with_word
from makeway_schemas.facts import NodeCommandIssued


def noted(*words: tuple[str, str, str]) -> str:
    """The note after words of (kind, who, reason)."""
    note = ""
    for kind, who, reason in words:
        fact = NodeCommandIssued(
            id="1", correlation_id="n1", command_id=1, command="drain", node_id="n1", reason=reason, issued_by=who,
            issued_at=datetime(2026, 11, 30, tzinfo=UTC),
        )  # fmt: skip
        note = with_word(note, kind, fact)
    return note


def test_the_newest_reason_of_a_kind_is_kept() -> None:
    assert noted((DECLARED_DEAD, "ann", "silent"), (DECLARED_DEAD, "bob", "on fire")) == "declared dead by bob: on fire"


def test_a_word_without_a_reason_leaves_the_reason_that_was_given() -> None:
    assert noted((DRAINED, "ann", "fans"), (DRAINED, "bob", " ")) == "drained by ann: fans"
    assert noted((DRAINED, "ann", ""), (DRAINED, "bob", "")) == "drained by ann"


def test_words_of_other_kinds_stay_with_the_newest_last() -> None:
    note = noted((DRAINED, "ann", "fans"), (CORDONED, "eve", "noisy"), (DECLARED_DEAD, "bob", "on fire"))
    assert note.splitlines() == ["drained by ann: fans", "cordoned by eve: noisy", "declared dead by bob: on fire"]
    assert when_heard(note).splitlines() == ["drained by ann: fans", "cordoned by eve: noisy"]
    assert when_opened(note) == "declared dead by bob: on fire"


def test_a_reason_of_many_lines_is_one_word() -> None:
    note = noted((DRAINED, "ann\nx", "fans\r\ndeclared dead by\u2028eve"))
    assert note == "drained by ann x: fans declared dead by eve"
    assert when_heard(note) == note
