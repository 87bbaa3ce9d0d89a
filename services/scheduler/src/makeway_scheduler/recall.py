"""What memory does not know and a batch of facts speaks of is asked of the database first."""

from collections.abc import Sequence

from makeway_schemas.facts import CommandIssued, Fact, JobAdmitted, NodeCommandIssued

from makeway_scheduler.ledger import Ledger
from makeway_scheduler.store import Store


async def look_for_teams(ledger: Ledger, store: Store, facts: Sequence[Fact]) -> None:
    """No job is decided by older rights than those it was admitted by."""
    newest = max((fact.job.teams_version for fact in facts if isinstance(fact, JobAdmitted)), default=0)
    if newest > ledger.teams_version:
        teams, ledger.teams_version = await store.load_teams()
        ledger.new_teams = tuple(teams)


async def complete(ledger: Ledger, store: Store, facts: list[Fact]) -> list[Fact]:
    """The facts with what they lack: jobs of commands that come before them, and without what was applied already.

    Commands come in the order in which they were given; those that a newer one has overtaken are noted in the ledger.
    """
    admitted = {fact.job.job_id for fact in facts if isinstance(fact, JobAdmitted)}
    unknown = {
        fact.job_id
        for fact in facts
        if isinstance(fact, CommandIssued) and fact.job_id not in ledger.jobs and fact.job_id not in admitted
    } | {
        fact.job.job_id
        for fact in facts
        if isinstance(fact, JobAdmitted)
        and fact.job.job_id not in ledger.jobs
        and (fact.job.order <= ledger.order_floor or fact.job.submitted_at.timestamp() <= ledger.loaded_at)
    }
    commands = [fact.command_id for fact in facts if isinstance(fact, CommandIssued | NodeCommandIssued)]
    if not unknown and not commands:
        return facts
    found = await store.unapplied_of(sorted(unknown)) if unknown else []
    done, ledger.overtaken = await store.settled_commands(commands) if commands else (frozenset(), frozenset())
    rest = [
        fact
        for fact in facts
        if not (isinstance(fact, JobAdmitted) and fact.job.job_id in unknown)
        and not (isinstance(fact, CommandIssued | NodeCommandIssued) and fact.command_id in done)
    ]
    return [*found, *_commands_in_order(rest)]


def _commands_in_order(facts: list[Fact]) -> list[Fact]:
    """The facts in their places, with the commands among them by number: whatever was said last holds."""
    commands = [fact for fact in facts if isinstance(fact, CommandIssued | NodeCommandIssued)]
    following = iter(sorted(commands, key=lambda each: each.command_id))
    return [next(following) if isinstance(fact, CommandIssued | NodeCommandIssued) else fact for fact in facts]
