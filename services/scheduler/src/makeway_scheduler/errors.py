"""The scheduler's errors. A refusal is a value; these are broken promises."""


class SchedulerError(Exception):
    """Base of all errors of this service."""


class Fenced(SchedulerError):
    """Another owner has raised the pool's epoch; this process must stop writing."""


class Conflict(SchedulerError):
    """A row to be locked is held by somebody else. Memory is still right."""


class Stale(SchedulerError):
    """A row is not what was seen; memory must be loaded again."""


class Refused(SchedulerError):
    """The database refused a write by a constraint."""
