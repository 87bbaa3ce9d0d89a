"""What travels to users: the history of a job (topic ``job.events``, table ``job_events``)."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from makeway_schemas.ids import JobId
from makeway_schemas.messages import Traced
from makeway_schemas.states import JobState

EVENT_TYPE = "makeway.job.event.v1"


class JobEvent(Traced):
    """One step of a job's life. ``kind`` is one of the names in docs/events.md; ``data`` is documented beside it."""

    version: Literal[1] = 1
    sequence: int = Field(description="Rising within the pool; the cursor of the event stream.")
    job_id: JobId
    at: datetime
    kind: str
    state: JobState
    run: int | None = None
    data: dict[str, Any] = Field(default_factory=dict)
