"""The errors of this package, in one small tree."""


class MakewayRuntimeError(Exception):
    """Base of all errors raised here."""


class TransientError(MakewayRuntimeError):
    """May pass by itself: try again later, after a growing delay."""


class PublishUncertain(TransientError):
    """Not every message was acknowledged in time; each may or may not arrive.

    Whoever publishes repeats the same messages, in the same order, until this is not raised.
    """


class CommitUncertain(MakewayRuntimeError):
    """The answer to a COMMIT was lost: the transaction may have been committed or not.

    Not transient: repeating it blindly could apply it twice. The caller loads its state again first.
    """


class InvalidEvent(MakewayRuntimeError):
    """A message whose headers are no CloudEvent in binary mode; the text says why."""


class InvalidSetting(MakewayRuntimeError):
    """A setting names something that cannot be used; the text says which setting and why."""


class StuckService(MakewayRuntimeError):
    """A health check stayed red for too long: the process ends so that its supervisor starts a new one."""
