"""What every message has in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Traceparent = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")]


class Message(BaseModel):
    """A frozen value on the wire. A newer sender may add fields: a receiver ignores those it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, allow_inf_nan=False)


class Traced(Message):
    """A message with an identity: sending it again is the same message."""

    id: str = Field(description="Derived from what happened, so that a re-send is the same event.", max_length=400)
    correlation_id: str | None = Field(default=None, description="The job that all this is about.")
    causation_id: str | None = Field(default=None, description="The id of the message that led to this one.")
    traceparent: Traceparent | None = Field(default=None, description="W3C trace context.")
