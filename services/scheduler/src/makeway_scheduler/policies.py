"""The policy in force: the newest one that was applied to the pool, else the one of the settings.

A policy that is applied changes base, and the v of the holds and runs that are there, at once; the queue's order
follows from it. What a run was promised by its age (`promoted`) stays. A card takes another `max_shares` once no run
is on it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import structlog
from makeway_policy.checks import problems
from makeway_policy.document import from_document, to_document
from makeway_policy.past_use import PastUse
from makeway_policy.priority import base
from makeway_policy.rules import Policy
from makeway_runtime.errors import InvalidSetting
from makeway_runtime.policy_setting import policy_document
from makeway_schemas.policy_file import PolicyFile
from pydantic import ValidationError

from makeway_scheduler import releases
from makeway_scheduler.apply_nodes import slots_of
from makeway_scheduler.ledger import Ledger, NewPolicy, PolicyInForce
from makeway_scheduler.policy_values import job_value
from makeway_scheduler.records import JobRecord, RunRecord
from makeway_scheduler.store import Store

_LOG: Final = structlog.get_logger(__name__)


def first_policy(path: Path | None) -> Policy:
    """The policy of the settings. Raises InvalidSetting."""
    policy = from_document(policy_document(path))
    wrong = problems(policy)
    if wrong:
        raise InvalidSetting(f"MAKEWAY_POLICY_FILE: {path}: {'; '.join(wrong)}")
    return policy


async def begin_with_policy(ledger: Ledger, store: Store, first: Policy) -> None:
    """Take the newest policy, else ``first``; runs that an older one decided get its values with the first batch."""
    ledger.policy_in_force = await store.load_policy_in_force()
    await look_for_policy(ledger, store)
    if ledger.new_policy is None:
        ledger.new_policy = NewPolicy(policy_id=ledger.policy_id, policy=first)
    ledger.policy = ledger.new_policy.policy


async def look_for_policy(ledger: Ledger, store: Store) -> bool:
    """Note a policy that was applied meanwhile, for the next batch. Returns whether there is one."""
    found = await store.load_policies(ledger.policy_id)
    newest = _newest_readable(found)
    if newest is not None:
        ledger.new_policy = newest
    elif found:
        ledger.policy_id = found[0][0]
    return newest is not None


def _newest_readable(found: Sequence[tuple[int, Mapping[str, Any]]]) -> NewPolicy | None:
    """The newest policy that this version understands; None where there is none.

    A newer version of admission may have kept one that this version cannot read: the one before it stays in force.
    """
    for policy_id, body in found:
        try:
            policy = from_document(PolicyFile.model_validate(body).document())
        except ValidationError as error:
            _LOG.error("a policy cannot be read and is passed over", policy=policy_id, error=str(error))
            continue
        wrong = problems(policy)
        if not wrong:
            return NewPolicy(policy_id=policy_id, policy=policy)
        _LOG.error("a policy contradicts itself and is passed over", policy=policy_id, problems=wrong)
    return None


def apply_policy(ledger: Ledger, newer: NewPolicy, past: Mapping[str, PastUse], now: float) -> None:
    """Decide by the newer policy from here on, and give the runs and cards that are there what it says of them.

    `past` is what each team has used so far, by the newer policy's half-life.
    """
    ledger.policy = newer.policy
    for team_id, used in past.items():
        ledger.state.put_past_use(team_id, used)
    for run in list(ledger.runs):
        job = ledger.jobs.get(run.job_id)
        if job is not None and not run.ended:
            _revalue(ledger, job, run, newer, now)
    _note_in_force(ledger, newer, now)
    for gpu in list(ledger.gpus):
        slots = slots_of(ledger, gpu)
        if slots != gpu.capacity_slots:
            ledger.gpus.put(gpu.gpu_id, replace(gpu, capacity_slots=slots))


def _note_in_force(ledger: Ledger, newer: NewPolicy, now: float) -> None:
    """Store which policy is in force, and let held jobs go on if it is another than was.

    A take-over takes the policy too: under the same one no fact has changed.
    """
    before = ledger.policy_in_force
    digest = None if newer.policy_id else _digest(newer.policy)
    found = PolicyInForce(policy_id=newer.policy_id, settings_digest=digest)
    if found == before:
        return
    ledger.batch.policy_in_force = found
    if before.policy_id == newer.policy_id and before.settings_digest is None:
        return  # the policy of the settings, of which nothing was stored yet
    reason = f"policy {newer.policy_id} was applied" if newer.policy_id else "the policy of the settings has changed"
    releases.release_all(ledger, reason, now)


def _digest(policy: Policy) -> str:
    return hashlib.sha256(json.dumps(to_document(policy), sort_keys=True).encode()).hexdigest()


def worth(ledger: Ledger, job: JobRecord, run: RunRecord) -> int:
    """The v of a run that was decided: the job's base as it is now, and Δ if an aged job won it."""
    return base(job_value(job), ledger.policy) + (ledger.policy.delta if run.promoted else 0)


def _revalue(ledger: Ledger, job: JobRecord, run: RunRecord, newer: NewPolicy, now: float) -> None:
    value = worth(ledger, job, run)
    if value == run.value:
        return
    ledger.runs.put(run.run_id, replace(run, value=value))
    ledger.tell(job, "revalued", now, policy=newer.policy_id, before=run.value, value=value)
