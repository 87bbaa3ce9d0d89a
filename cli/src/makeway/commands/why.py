"""``why``: the reason, how old it is, and what lies ahead."""

from datetime import datetime
from typing import Final

import typer
from makeway_schemas.api import WhyView
from makeway_schemas.states import TERMINAL, JobState

from makeway.commands.options import Job, Output, State, connect
from makeway.output import (
    OutputFormat,
    age,
    in_local_time,
    local_time,
    print_fields,
    print_json,
    print_out,
    print_table,
)

app = typer.Typer(rich_markup_mode=None)

_PLAIN_REASONS: Final = dict.fromkeys(JobState, "") | {
    JobState.QUEUED: "it was accepted and not decided yet",
    JobState.STARTING: "its GPUs are leased and its node starts it",
    JobState.RUNNING: "it runs; nothing keeps it from going on",
    **dict.fromkeys(TERMINAL, "it has ended"),
}
_AHEAD: Final = (("may begin", "begin_at"), ("expected start", "expected_start"), ("longest wait", "worst_case_wait"))
"""Of an explanation what lies ahead, by the field that has it."""


@app.command()
def why(job: Job, output: Output = OutputFormat.TEXT, state_dir: State = None) -> None:
    """Say why a job is where it is: the reason, its place in the queue, who is ahead, and what was considered."""
    client = connect(state_dir)
    with client:
        view = client.why(client.resolve(job))
    if output is OutputFormat.JSON:
        print_json(view)
        return
    print_fields(_why_fields(view))
    considered = _considered(view)
    if considered:
        print_out("considered when it was decided:")
        print_fields(considered)
    if view.ahead:
        print_out("ahead:")
        print_table(
            ("ID", "NAME", "CLASS", "VALUE"), ((a.job_id, a.name, a.class_name, str(a.queue_value)) for a in view.ahead)
        )


def _why_fields(view: WhyView) -> list[tuple[str, str]]:
    place = "" if view.queue_position is None else f"{view.queue_position} of {view.queue_length}"
    decided = (
        "" if view.decided_at is None else f"{local_time(view.decided_at)}, {age(view.decided_at, view.as_of)} ago"
    )
    reason = in_local_time(view.reason)
    return [
        ("state", view.state),
        ("reason", f"{reason} ({view.reason_code})" if view.reason_code else reason or _PLAIN_REASONS[view.state]),
        ("place in the queue", place),
        ("decided", decided),
        *((name, _ahead_of_now(view.detail.get(field), view.as_of)) for name, field in _AHEAD),
        ("next look", str(view.detail.get("next_look", ""))),
    ]


def _ahead_of_now(at: object, now: datetime | None) -> str:
    """A moment to come, with how far off it is; other texts as they are."""
    if not isinstance(at, str):
        return ""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return in_local_time(at)
    return local_time(moment) if now is None or moment <= now else f"{local_time(moment)}, in {age(now, moment)}"


def _considered(view: WhyView) -> list[tuple[str, str]]:
    """What a decision was made from; what it says of times and runs the server has held against now."""
    shown = {"next_look", "next_look_at", *(field for _, field in _AHEAD)}
    return [
        (name.replace("_", " "), _detail(value, view.as_of))
        for name, value in view.detail.items()
        if name not in shown and value not in (None, "", [], {})
    ]


def _detail(value: object, now: datetime | None) -> str:
    """A stored detail in words: counts, lists of sentences, runs with what spares them."""
    if isinstance(value, dict) and "run" in value:
        until = f" until {_ahead_of_now(value['until'], now)}" if value.get("until") else ""
        spared = in_local_time(value.get("spared") or "could make way")
        return f"{value['run']} (value {value.get('value')}): {spared}{until}"
    if isinstance(value, dict):
        return ", ".join(f"{count} {word}" for word, count in value.items())
    if isinstance(value, list):
        return "; ".join(_detail(each, now) for each in value)
    return in_local_time(str(value))
