"""The demo as one HTML page: choose a strategy, step through what happens, see who ran where."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib import resources
from typing import Any, Final

from makeway_policy.quantities import quantity

from makeway_simulator.demo import CLUSTER, JOBS, LOST, Choice, DemoRun, Row, runs, table
from makeway_simulator.outcome import EndKind
from makeway_simulator.page import page
from makeway_simulator.record import Record, Segment
from makeway_simulator.report import script_data

_LEAD: Final = (
    "<p class=lead>Four GPUs are busy with training when urgent work arrives. Does it wait, or does training make way? "
    "And what does that cost: nothing, some work done again, or the whole job? Choose a strategy, then press Play, "
    "or go step by step.</p>"
)
_CONTROLS: Final = (
    "<div id=choices></div><p><button id=back>Step back</button> <button id=step>Step</button> "
    "<button id=play>Play</button> <button id=again>From the start</button> <span id=clock></span></p>"
    "<div id=chart></div><p class=lead id=said aria-live=polite></p><ol id=events></ol>"
)
_WORDS: Final = (
    "<dl><dt><b>Trigger</b></dt><dd>Why somebody has to make way: work of higher priority arrived, or has waited too "
    "long.</dd><dt><b>Eviction</b></dt><dd>The running job gets a notice, and its grace period to save its state."
    "</dd><dt><b>Checkpoint</b></dt><dd>Saved work. What was done after the last save is lost.</dd>"
    "<dt><b>Resume</b></dt><dd>The job goes on from its checkpoint; loading it takes a while (grey).</dd>"
    "<dt><b>CANCEL, REQUEUE, CHECKPOINT</b></dt><dd>What becomes of the evicted job: it ends; it starts over later; "
    "it goes on later.</dd></dl>"
)


def demo_page(choice: Choice) -> str:
    """The page; it carries the chosen run, and those with other values to compare it with."""
    data = {
        "gpus": CLUSTER.gpus,
        "chosen": _key(choice),
        "classes": {job.job_id: job.class_name for job in JOBS},
        "runs": [_run(each) for each in runs(choice)],
    }
    script = resources.files("makeway_simulator.pages").joinpath("demo.js").read_text(encoding="utf-8")
    body = f"{_CONTROLS}<script>const DATA={script_data(data)};{script}</script>"
    return page(
        "Who makes way, and what it costs",
        [
            ("Watch it happen", body, "Red edge: evicted. Grey: loading a checkpoint. One row a GPU."),
            ("All strategies at a glance", rows_table(table(choice)), f"Waits are of urgent and high jobs. {LOST}"),
            ("Words", _WORDS, ""),
        ],
        lead=_LEAD,
    )


def rows_table(rows: Sequence[Row]) -> str:
    """The strategies as an HTML table."""
    head = "<tr><th>strategy</th><th>mean wait</th><th>longest wait</th><th>training done at</th>"
    head += "<th>GPU-seconds lost</th><th>evictions</th><th>cancelled</th></tr>"
    body = "".join(
        f"<tr><th>{each.strategy}</th><td>{each.mean_wait_seconds:.1f} s</td><td>{each.longest_wait_seconds:.1f} s</td>"
        f"<td>{_done(each)}</td><td>{each.lost_gpu_seconds:.0f}</td><td>{each.preemptions}</td>"
        f"<td>{each.cancelled}</td></tr>"
        for each in rows
    )
    return f"<table>{head}{body}</table>"


def _done(row: Row) -> str:
    return f"{row.training_done_at:.0f} s" if row.training_done_at else "never"


def _run(run: DemoRun) -> dict[str, Any]:
    return {
        **_key(run.choice),
        "bars": [_bar(segment) for segment in run.record.segments],
        "events": told(run.record),
        "lost": round(sum(each.lost_gpu_seconds for each in run.record.outcomes)),
    }


def _key(choice: Choice) -> dict[str, Any]:
    return {name: getattr(value, "value", value) for name, value in asdict(choice).items()}


def _bar(segment: Segment) -> dict[str, Any]:
    return {
        "job": segment.job_id,
        "gpus": [int(gpu.rpartition("/")[2]) for gpu in segment.gpus],
        "from": segment.started_at,
        "ready": segment.ready_at,
        "to": segment.ended_at,
        "cut": segment.kind is not EndKind.FINISHED,
    }


def told(record: Record) -> list[dict[str, Any]]:
    """Everything that happened, in order, as sentences."""
    found = [*_arrivals(), *_evictions(record), *_runs(record.segments)]
    ordered = sorted(found, key=lambda each: (each[0], each[1]))
    return [{"at": at, "kind": kind, "text": text} for at, _, kind, text in ordered]


def _arrivals() -> Iterable[tuple[float, int, str, str]]:
    for job in JOBS:
        cards = quantity(job.gpus, "GPU")
        yield job.submitted_at, 1, "arrival", f"{job.job_id} ({job.class_name}) arrives and asks for {cards}."


def _evictions(record: Record) -> Iterable[tuple[float, int, str, str]]:
    for each in record.preemptions:
        why = "its priority is higher" if each.trigger.value == "arrival" else each.trigger.value.replace("_", " ")
        text = f"{each.victim} gets its notice: {each.preemptor} takes its place ({why}; mode {each.mode.value})."
        yield each.at, 2, "eviction", text


def _runs(segments: Iterable[Segment]) -> Iterable[tuple[float, int, str, str]]:
    for each in segments:
        if each.resumed_seconds:
            text = f"{each.job_id} resumes; {each.resumed_seconds:.0f} s of its work were saved."
            yield each.started_at, 4, "resume", text
        else:
            again = " again, from nothing" if each.run > 1 else ""
            yield each.started_at, 4, "start", f"{each.job_id} starts{again}."
        if each.kind is EndKind.FINISHED:
            yield each.ended_at, 0, "finish", f"{each.job_id} is done."
        elif each.kind is EndKind.CANCELLED:
            yield each.ended_at, 3, "end", f"{each.job_id} is cancelled; all its work is lost."
        else:
            kept = f"{each.saved_seconds:.0f} s of its work are saved" if each.saved_seconds else "its work is lost"
            yield each.ended_at, 3, "checkpoint", f"{each.job_id} has left; {kept}."
