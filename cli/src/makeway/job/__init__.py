"""The job's side of makeway: is a stop wanted, checkpoints, acks. The standard library only.

The short way, for a program with a loop::

    with makeway.job.session() as job:
        saved = job.resume()
        step = saved.step if saved else 0
        while step < steps and not job.stop_requested():
            step += 1
            train_one(step)
            if step % 100 == 0:
                job.save(step, {"weights": weights, "optimizer": optimizer, "random": generator.bit_generator.state})
        if job.stop_requested():
            job.save(step, {...}, wait=True)

Leaving the block at a normal end declares the job done; leaving it by an exception or with a stop wanted does not.
Everything works outside makeway too: no stop is ever wanted by a socket, acks go nowhere, checkpoints lie in a plain
folder. Start reading at ``session``; ``control`` speaks with the shim, ``notice`` hears the stop, ``checkpoint`` keeps
files.
"""

from makeway.job.checkpoint import Checkpoint, CheckpointFolder, Superseded
from makeway.job.control import ControlError, ack, done, resumed
from makeway.job.notice import grace_left, on_stop, stop_requested
from makeway.job.session import SaveFailed, Session, session

__all__ = [
    "Checkpoint",
    "CheckpointFolder",
    "ControlError",
    "SaveFailed",
    "Session",
    "Superseded",
    "ack",
    "done",
    "grace_left",
    "on_stop",
    "resumed",
    "session",
    "stop_requested",
]
