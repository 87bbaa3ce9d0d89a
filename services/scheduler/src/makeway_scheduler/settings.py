"""The scheduler's settings, read once in ``app.py``."""

from makeway_runtime.settings import DatabaseServiceSettings
from pydantic import PositiveFloat, PositiveInt


class SchedulerSettings(DatabaseServiceSettings):
    """Frozen; from ``MAKEWAY_*`` variables."""

    owner_name: str = ""
    """How this process calls itself in the pool's row; default: host name and process id."""
    sweep_seconds: PositiveFloat = 5.0
    """How often the level-triggered twins are asked: unapplied jobs and commands, unpublished events, teams."""
    replay_seconds: PositiveFloat = 30.0
    """How far back a new owner reads its inbox; facts are idempotent, and older ones are in the nodes' reports."""
    events_days: PositiveInt = 30
    decisions_days: PositiveInt = 30
