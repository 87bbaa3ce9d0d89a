"""The errors of this package, in one small tree."""


class ExecutorError(Exception):
    """Base of all errors raised here."""


class SpawnFailed(ExecutorError):
    """A shim could not be spawned: the run ends as not startable, with this text."""


class InvalidIntent(ExecutorError):
    """What is to be run cannot be written down or read back; the text says why."""


class SecondExecutor(ExecutorError):
    """Another executor holds this node's lock file."""


class ChannelBroken(ExecutorError):
    """Admission does not answer on the log channel as was agreed."""
