"""Identifiers: how they look, how they are made, how they are told apart.

- job id: 12 characters of Crockford's base 32 in lower case (60 random bits), so that a short prefix is enough to type
- run id: ``<job id>.<number>``, numbers from 1
- node id: the node's name; GPU id: the UUID that NVML reports
- event id: derived from what happened, so that sending it again is the same event
"""

import re
import secrets
from typing import Annotated

from pydantic import StringConstraints

from makeway_schemas.id_patterns import (
    ALPHABET,
    GPU_ID_PATTERN,
    JOB_ID_LENGTH,
    JOB_ID_PATTERN,
    NODE_ID_PATTERN,
    POOL_PATTERN,
    RUN_ID_PATTERN,
    TEAM_PATTERN,
)

JobId = Annotated[str, StringConstraints(pattern=JOB_ID_PATTERN)]
RunId = Annotated[str, StringConstraints(pattern=RUN_ID_PATTERN)]
NodeId = Annotated[str, StringConstraints(pattern=NODE_ID_PATTERN)]
GpuId = Annotated[str, StringConstraints(pattern=GPU_ID_PATTERN)]
PoolId = Annotated[str, StringConstraints(pattern=POOL_PATTERN)]
TeamId = Annotated[str, StringConstraints(pattern=TEAM_PATTERN)]


def new_job_id() -> str:
    """A fresh random job id; the database's primary key has the last word on its being unique."""
    # 256 is a multiple of 32, so each character is as likely as any other.
    return "".join(ALPHABET[byte % 32] for byte in secrets.token_bytes(JOB_ID_LENGTH))


def run_id(job_id: str, number: int) -> str:
    """The id of a job's run, numbered from 1."""
    return f"{job_id}.{number}"


def job_of(run: str) -> str:
    """The job id inside a run id."""
    return run.partition(".")[0]


def number_of(run: str) -> int:
    """The run's number inside a run id."""
    return int(run.partition(".")[2])


def is_job_id(text: str) -> bool:
    """Whether the text has the form of a whole job id."""
    return re.match(JOB_ID_PATTERN, text) is not None
