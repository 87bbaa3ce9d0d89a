"""Whose word keeps a node closed, and why: one line for each kind of word, the newest last.

A word stays until it is taken back: those that close a node by an uncordon, the one that declared it dead once the node
is heard again. Of each kind the newest counts, and one that gives no reason leaves the reason that was given.
"""

from typing import Final

from makeway_schemas.facts import NodeCommandIssued

CORDONED: Final = "cordoned"
DRAINED: Final = "drained"
DECLARED_DEAD: Final = "declared dead"


def with_word(note: str, kind: str, fact: NodeCommandIssued) -> str:
    """The note with a further word of that kind."""
    lines = note.splitlines()
    others = [line for line in lines if not _is_of(line, kind)]
    if not fact.reason.strip() and len(others) < len(lines):
        return note
    reason = f": {fact.reason}" if fact.reason.strip() else ""
    # Whoever asks and the reason are people's texts: a word stays on its line.
    word = " ".join(f"{kind} by {fact.issued_by}{reason}".split())
    return "\n".join([*others, word])


def when_opened(note: str) -> str:
    """What is left of it once nobody keeps the node closed: the word that declared it dead."""
    return "\n".join(line for line in note.splitlines() if _is_of(line, DECLARED_DEAD))


def when_heard(note: str) -> str:
    """What is left of it once the node is heard: the words that keep it closed."""
    return "\n".join(line for line in note.splitlines() if not _is_of(line, DECLARED_DEAD))


def _is_of(line: str, kind: str) -> bool:
    return line.startswith(f"{kind} by ")
