"""``team``: limits and what is used of them."""

from typing import Annotated

import typer
from makeway_schemas.amounts import percent_of
from makeway_schemas.api import TeamBody, TeamView
from makeway_schemas.names import team_name_objection
from pydantic import ValidationError

from makeway.commands.options import Output, State, connect
from makeway.documents.problems import sentence_of
from makeway.errors import SpecInvalid, SpecProblem
from makeway.output import OutputFormat, print_json, print_table, say

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

ClassLimits = Annotated[
    list[str] | None,
    typer.Option(metavar="CLASS=GPUS", help="GPUs, or per cent, at most in a class; once for each class."),
]
Allowances = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RIGHT=GPUS",
        help="GPUs, or per cent, of urgent, high, not_preemptible or hard_groups; once for each right.",
    ),
]


@app.callback()
def team() -> None:
    """Teams: limits, guarantees, allowances."""


@app.command("list")
def list_teams(output: Output = OutputFormat.TEXT, state_dir: State = None) -> None:
    """List teams, their limits and what they use now."""
    client = connect(state_dir)
    with client:
        teams = client.teams()
    if output is OutputFormat.JSON:
        print_json(teams)
        return
    _print(teams)


@app.command("set")
def set_team(
    name: Annotated[str, typer.Argument(help="The team.")],
    limit: Annotated[str | None, typer.Option(help="GPUs at most, per cent of the pool such as 25%, or none.")] = None,
    guarantee: Annotated[
        str | None, typer.Option(help="GPUs, or per cent of the pool, that the team can always get back.")
    ] = None,
    user_limit: Annotated[str | None, typer.Option(help="The same of each of its users, or none.")] = None,
    gpu_hours_per_month: Annotated[
        str | None, typer.Option(help="GPU-hours of a calendar month (UTC), or none; then nothing more starts.")
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Its weight where the order is fair; 0 is last.")] = None,
    max_queued: Annotated[str | None, typer.Option(help="Most jobs that may wait.")] = None,
    class_limit: ClassLimits = None,
    allow: Allowances = None,
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
) -> None:
    """Create a team or change what is named: --allow urgent=4 --allow high=10% --class-limit low=2.

    From the first team on, every team has only the rights that were set up for it, the team default too.
    """
    given = {
        "limit": limit,
        "guarantee": guarantee,
        "user_limit": user_limit,
        "gpu_hours_per_month": gpu_hours_per_month,
        "weight": weight,
        "max_queued": max_queued,
    }
    objection = team_name_objection(name)
    if objection is not None:
        raise SpecInvalid((SpecProblem(field="team", message=objection),))
    changes = {field: _number(value) for field, value in given.items() if value is not None}
    client = connect(state_dir)
    with client:
        before = next((team for team in client.teams() if team.team == name), None)
        kept = {} if before is None else before.model_dump(include=set(TeamBody.model_fields))
        values = kept | changes
        values["class_limits"] = dict(kept.get("class_limits", {})) | _entries(class_limit, "--class-limit")
        values["allowances"] = dict(kept.get("allowances", {})) | _entries(allow, "--allow")
        after = client.set_team(name, _body(values))
    for note in after.notes:
        say(note)
    if output is OutputFormat.JSON:
        print_json(after)
        return
    _print([after])


def _number(value: str | float) -> object:
    if isinstance(value, str) and value.lower() == "none":
        return None
    return int(value) if isinstance(value, str) and value.isascii() and value.lstrip("-").isdigit() else value


def _entries(texts: list[str] | None, flag: str) -> dict[str, object]:
    entries: dict[str, object] = {}
    for text in texts or ():
        name, found, value = text.partition("=")
        if not found:
            raise typer.BadParameter(f"{text!r} is not NAME=GPUS, as urgent=4 or urgent=25%", param_hint=flag)
        entries[name] = _number(value)
    return entries


def _body(values: dict[str, object]) -> TeamBody:
    try:
        return TeamBody.model_validate(values)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        problems = (
            SpecProblem(field=".".join(map(str, d["loc"])), message=sentence_of(d["type"], d["msg"])) for d in details
        )
        raise SpecInvalid(tuple(problems)) from error


def _print(teams: list[TeamView]) -> None:
    columns = (
        "TEAM",
        "USED",
        "GUARANTEE",
        "LIMIT",
        "A USER",
        "HOURS A MONTH",
        "WEIGHT",
        "RUNNING",
        "WAITING",
        "MAX QUEUED",
        "ALLOWED",
        "CLASS LIMITS",
    )
    print_table(columns, (_row(team) for team in teams))


def _row(team: TeamView) -> tuple[str, ...]:
    return (
        team.team,
        f"{team.gpus_used:g}",
        _amount(team.guarantee, team),
        _amount(team.limit, team),
        _amount(team.user_limit, team),
        "any" if team.gpu_hours_per_month is None else f"{team.gpu_hours_per_month:g}",
        f"{team.weight:g}",
        str(team.jobs_running),
        str(team.jobs_waiting),
        str(team.max_queued),
        _text(team.allowances, team),
        _text(team.class_limits, team),
    )


def _text(entries: dict[str, int | str], team: TeamView) -> str:
    return ", ".join(f"{name}={_amount(value, team)}" for name, value in sorted(entries.items())) or "-"


def _amount(amount: int | str | None, team: TeamView) -> str:
    """GPUs; per cent of the pool with the GPUs that they come to now."""
    percent = percent_of(amount)
    if percent is None or team.pool_gpus is None:
        return "none" if amount is None else str(amount)
    return f"{amount}={percent * team.pool_gpus / 100:g}"
