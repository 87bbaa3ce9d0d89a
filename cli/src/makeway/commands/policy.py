"""``policy``: the rules that decide, shown, checked and applied."""

from typing import Annotated, Any

import typer
from makeway_policy.document import completed, flattened, sources, to_document
from makeway_policy.presets import PRESETS
from makeway_policy.quantities import quantity, verb
from makeway_schemas.api import PolicyApplied, PolicyView

from makeway.commands.options import Output, State, connect
from makeway.errors import Refused
from makeway.output import OutputFormat, local_time, print_json, print_out, print_table, say
from makeway.policy_file import GivenPolicy, load_policy, placed_in
from makeway.policy_text import policy_lines, value_text

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

File = Annotated[str, typer.Argument(metavar="FILE|PRESET", help="A policy file, - for stdin, or a preset's name.")]
Pool = Annotated[str, typer.Option(help="The pool of nodes.")]


@app.callback()
def policy() -> None:
    """Policy: classes, preemption, fairness. docs/policy.md has every field."""


@app.command()
def show(
    effective: Annotated[bool, typer.Option("--effective", help="Every value, and where it comes from.")] = False,
    preset: Annotated[str | None, typer.Option(help=f"A preset instead: {', '.join(PRESETS)}.")] = None,
    pool: Pool = "default",
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
) -> None:
    """Print the policy in force, as a file that could be applied."""
    view = _preset_view(preset) if preset is not None else _view_in_force(pool, state_dir)
    where = sources(view.document)
    if output is OutputFormat.JSON:
        print_json(view.model_dump(mode="json") | {"sources": where})
        return
    if view.policy_id is not None:
        print_out(f"# policy {view.policy_id} of pool {view.pool}, by {view.applied_by}, {local_time(view.applied_at)}")
    elif preset is None:
        print_out(f"# pool {view.pool} has what it began with; nothing was applied")
    whole = _with_effective(view) if effective else {"preset": PRESETS["default"].name} | view.document
    for line in policy_lines(whole, where if effective else None):
        print_out(line)


@app.command()
def check(file: File, output: Output = OutputFormat.TEXT) -> None:
    """Say what is wrong with a policy file, line by line; with --output json, print it as services read it."""
    given = load_policy(file)
    if output is OutputFormat.JSON:
        print_json(given.document)
        return
    count = len([path for path in flattened(given.document) if path not in ("preset", "name")])
    differ = f"{quantity(count, 'value')} {verb(count, 'differs', 'differ')}"
    print_out(f"{given.source}: in order; {differ} from preset {given.document.get('preset', 'default')}")


@app.command("apply")
def apply_policy(
    file: File,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would change.")] = False,
    pool: Pool = "default",
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
) -> None:
    """Apply a policy to the pool: order, values of runs and holds, and what submits may ask for follow at once."""
    given = load_policy(file)
    client = connect(state_dir)
    with client:
        done = _apply(client.apply_policy, given, pool, dry_run)
    if output is OutputFormat.JSON:
        print_json(done)
        return
    _print_changes(done)
    _say_what_happened(done, dry_run)


def _apply(send: Any, given: GivenPolicy, pool: str, dry_run: bool) -> PolicyApplied:
    try:
        applied: PolicyApplied = send(pool, given.document, dry_run=dry_run)
    except Refused as error:
        raise (placed_in(given, error) or error) from error
    return applied


def _view_in_force(pool: str, state_dir: State) -> PolicyView:
    client = connect(state_dir)
    with client:
        return client.policy(pool)


def _preset_view(name: str) -> PolicyView:
    if name not in PRESETS:
        raise typer.BadParameter(f"there is no preset {name}; there are {', '.join(PRESETS)}", param_hint="--preset")
    return PolicyView(pool="", document={"preset": name}, effective=to_document(PRESETS[name]))


def _with_effective(view: PolicyView) -> dict[str, Any]:
    """Every value by the server's word; what the document takes away stays taken away."""
    whole = completed(view.document)
    classes = {name: rules for name, rules in whole["classes"].items() if rules is None} | view.effective["classes"]
    return whole | view.effective | {"classes": classes}


def _print_changes(done: PolicyApplied) -> None:
    if done.changes:
        rows = (
            (each.field, value_text(each.field, each.before), value_text(each.field, each.after))
            for each in done.changes
        )
        print_table(("FIELD", "BEFORE", "AFTER"), rows)
    if done.jobs:
        print_out("")
        print_table(
            ("JOB", "NAME", "TEAM", "CLASS", "STATE", "BASE BEFORE", "AFTER"),
            (
                (job.job_id, job.name, job.team, job.class_name, job.state, str(job.before), str(job.after))
                for job in done.jobs
            ),
        )


def _say_what_happened(done: PolicyApplied, dry_run: bool) -> None:
    unseen = done.jobs_changed - len(done.jobs)
    if unseen > 0:
        say(f"and {quantity(unseen, 'more job')}")
    if dry_run:
        say("dry run: nothing was changed")
    elif done.applied:
        say(f"policy {done.policy.policy_id} holds in pool {done.policy.pool}")
    else:
        say("nothing to change: this policy is in force")
