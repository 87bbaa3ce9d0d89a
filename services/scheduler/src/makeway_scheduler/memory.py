"""When memory is looked through for garbage: all of it seldom, since over a large pool that takes longer than a start.

What the pool's state is made of is let go as soon as nobody refers to it; only what refers to itself in circles waits
for the collector. So what a decision makes is set apart unseen, what else has lived for a while is set apart from the
next collections, and all of it is looked at again when the inbox is empty, once in an hour, or else once a day.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

_ALL_SECONDS = 3600.0
_AT_THE_LATEST_SECONDS = 86_400.0
_YOUNG = 1
_OBJECTS = 10_000
"""So many new objects make the collector look for garbage among them: a pass over much that waits makes thousands."""


@contextmanager
def made_to_last() -> Iterator[None]:
    """What is made meanwhile refers to nothing in circles: it is set apart, and no collector looks at it.

    Young garbage from before is let go first. Not to be waited in: it holds for all that is made in this process.
    """
    collects = gc.isenabled()
    gc.collect(_YOUNG)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


class Memory:
    """What this process keeps for long."""

    def __init__(self) -> None:
        """Applies to the whole process."""
        gc.set_threshold(_OBJECTS)
        self._looked_through_at = time.monotonic()

    def look_through(self) -> None:
        """Let go of all garbage, and set apart everything that is left."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._looked_through_at = time.monotonic()

    def set_apart(self, *, idle: bool) -> None:
        """Let go of young garbage, and set apart what is left; of all of it where nobody waits and it is time.

        Where somebody always waits it is done all the same, a day after the last time.
        """
        if time.monotonic() - self._looked_through_at >= (_ALL_SECONDS if idle else _AT_THE_LATEST_SECONDS):
            self.look_through()
            return
        gc.collect(_YOUNG)
        gc.freeze()
