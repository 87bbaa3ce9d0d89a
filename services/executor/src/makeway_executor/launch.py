"""From a planned run to what its shim is told: command, environment, folders, limits."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from makeway_schemas.facts import RunEnd
from makeway_schemas.ids import number_of
from makeway_schemas.plans import PlannedRun
from makeway_schemas.states import StopCause

from makeway_executor.errors import InvalidIntent
from makeway_executor.intent import Intent
from makeway_executor.run_folder import RunFolder
from makeway_executor.shim import MAX_SOCKET_PATH_BYTES

_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FINISHED_MARK: Final = ".finished"
"""In a checkpoint folder: its job's last run ended by itself; checkpoints older than this mark expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFolders:
    """Where things are on this node; `cgroup` is the folder for runs' cgroups, None where they cannot be made."""

    sockets: Path
    checkpoints: Path
    cgroup: Path | None
    log_head_bytes: int
    log_tail_bytes: int


def prepare(planned: PlannedRun, folder: RunFolder, folders: NodeFolders, *, key: str, boot_id: str) -> Intent:
    """Writes the script and makes the checkpoint folder where the run has them; returns the intent.

    Raises InvalidIntent with a sentence, OSError.
    """
    if planned.launch is None:
        raise InvalidIntent("the plan names neither command nor script")
    control_path = _control_path(folders.sockets, planned.run_id)
    folders.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)  # a job, or who tidies /tmp, may have taken it away
    checkpoints = folders.checkpoints / planned.job_id
    if planned.checkpoint:
        checkpoints.mkdir(parents=True, exist_ok=True)
        (checkpoints / FINISHED_MARK).unlink(missing_ok=True)
    return Intent(
        run_id=planned.run_id,
        key=key,
        boot_id=boot_id,
        control_path=control_path,
        working_dir=planned.launch.working_dir or str(folder.path),
        command=_command(planned, folder),
        env=environment(planned, control_path=control_path, checkpoints=checkpoints),
        cgroup=None if folders.cgroup is None else str(folders.cgroup / planned.run_id),
        log_head_bytes=folders.log_head_bytes,
        log_tail_bytes=folders.log_tail_bytes,
        time_limit_seconds=planned.time_limit_seconds,
        time_limit_grace_seconds=planned.grace_seconds,
        signal=signal.Signals[planned.signal.value].value,
        planned=planned.model_dump_json(exclude={"launch": {"env", "script"}}),
    )


def mark_finished(planned: PlannedRun, end: RunEnd, checkpoints: Path) -> None:
    """Notes beside a job's checkpoints that its run ended without being pushed aside: they may expire.

    The next run of the job takes the note away, so that a job that waits long for its turn loses nothing.
    """
    folder = checkpoints / planned.job_id
    pushed_aside = end.notice_delivered and not end.done and end.cause is not StopCause.CANCEL
    if not planned.checkpoint or end.outcome != "exited" or pushed_aside or not folder.is_dir():
        return
    with contextlib.suppress(OSError):
        (folder / FINISHED_MARK).touch()


def _control_path(sockets: Path, run_id: str) -> str:
    path = str(sockets / run_id)
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise InvalidIntent(f"the control socket's path {path} is longer than {MAX_SOCKET_PATH_BYTES} bytes")
    return path


def _command(planned: PlannedRun, folder: RunFolder) -> tuple[str, ...]:
    launch = planned.launch
    if launch is None or (launch.command is None and launch.script is None):
        raise InvalidIntent("the plan names neither command nor script")
    if launch.command is not None:
        if not launch.command:
            raise InvalidIntent("the command is empty")
        return launch.command
    script = launch.script or ""
    path = str(folder.write_script(script))
    return (path,) if script.startswith("#!") else ("/bin/sh", path)


def environment(planned: PlannedRun, *, control_path: str, checkpoints: Path) -> dict[str, str]:
    """The job's whole environment: a small clean one, its own variables, and what makeway tells it."""
    user = pwd.getpwuid(os.getuid())
    environment = {
        # The folder of this interpreter comes last: `makeway ack` is found, and hides no program of the system.
        "PATH": f"{_SYSTEM_PATH}:{Path(sys.executable).parent}",
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        **({} if planned.launch is None else planned.launch.env),
        "CUDA_VISIBLE_DEVICES": ",".join(gpu.gpu_id for gpu in planned.gpus),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "MAKEWAY_JOB_ID": planned.job_id,
        "MAKEWAY_RUN": str(number_of(planned.run_id)),
        "MAKEWAY_GPUS": str(len(planned.gpus)),
        "MAKEWAY_VRAM_MIB": str(min((gpu.vram_mib for gpu in planned.gpus), default=0)),
        "MAKEWAY_GRACE_SECONDS": f"{planned.grace_seconds:g}",
        "MAKEWAY_CHECKPOINT_DIR": str(checkpoints),
        "MAKEWAY_CONTROL": control_path,
    }
    if planned.traceparent is not None:
        environment["TRACEPARENT"] = planned.traceparent
    return environment
