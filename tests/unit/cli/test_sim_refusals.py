"""What a scenario file cannot mean is refused with its place, in the words of scenario files, and at once."""

from pathlib import Path

import pytest
from makeway.exit_codes import ExitCode
from makeway.main import app
from typer.testing import CliRunner

HEAD = "cluster: {nodes: [node-a]}\n"
JOB = HEAD + "jobs: [{id: a, dur: 9%s}]\n"
ACTION = JOB % "" + "actions: [{at: 1, %s}]\n"
EXPECT = JOB % "" + "expect: [{evictions: 0, %s}]\n"

CHANGE = HEAD + "jobs: [{id: a-1..a-3, dur: 9}]\nvariants: [{name: v, change: {%s}}]\n"

REFUSED = [
    (CHANGE % "a-2..a-3: {prio: 3}", "3:42", "variants[0].change.a-2..a-3.prio: unknown field"),
    (CHANGE % "a-2..a-3: {dur: [1]}", "3:42", "variants[0].change.a-2..a-3.dur: 1 value for 2 names"),
    (CHANGE % "all: {dur: [1]}", "3:37", "variants[0].change.all.dur: 1 value for 3 names"),
    (CHANGE % "a-2..a-9: {dur: 1}", "3:31", "variants[0].change.a-2..a-9: there is no such job"),
    (JOB % ", retries: -1", "2:24", "jobs[0].retries: should be greater than or equal to 0"),
    (ACTION.replace("at: 1", "at: {from: 0, to: 1000, step: 0.001}") % "cancel: a", "3:12", "at most 1000 times"),
    (ACTION.replace("at: 1", "at: {from: 0, to: 1e9, step: 1e-9}") % "cancel: a", "3:12", "at most 1000 times"),
    (ACTION.replace("at: 1", "at: {from: 5, to: 1, step: 1}") % "cancel: a", "3:12", "from a time to a later one"),
    ("cluster: {nodes: [{name: a, gpus: 1000000000}]}\n", "1:29", "less than or equal to 1024"),
    ("cluster: {nodes: [a], gpus_each: 1000000000}\n", "1:23", "less than or equal to 1024"),
    (HEAD + "jobs: [{id: job-1..job-9999}]\n", "2:1", "9999 jobs; a scenario has at most 2000"),
    (HEAD + "jobs: [{id: job-1..job-999999999}]\n", "2:9", "at most 10000 names"),
    (HEAD + f"jobs: [{{id: job-1..job-{'9' * 5000}}}]\n", "2:9", "at most 10000 names"),
    (ACTION % "cancel: job-1..job-999999999", "3:19", "at most 10000 names"),
    (EXPECT % "state: {job-1..job-999999999: RUNNING}", "3:33", "at most 10000 names"),
    (ACTION % "quarantine: node-a/7", "3:19", "there is no GPU node-a/7"),
    (ACTION % "quarantine: node-a", "3:19", "there is no GPU node-a"),
    (ACTION % "add_node: {name: node-a}", "3:30", "there is a node node-a before it"),
    ("cluster: {nodes: [a, a]}\njobs: [{id: a}]\n", "1:22", "there is a node a before it"),
    (JOB % ", group: nogroup", "2:24", "there is no group nogroup; there is none"),
    (JOB % ", needs: nowhere", "2:24", "there is no node nowhere; there is node-a"),
    (JOB % ", class: nope", "2:24", "there is no class nope; there is scenario"),
    (JOB % ", members: abc", "2:24", "must be a number"),
    (JOB % ", members: [1]", "2:24", "must be a number"),
    (JOB % ", gpus: {a: 1}", "2:24", "must be a number"),
    (JOB % ", pri: high", "2:24", "jobs[0].pri: must be a number (given: high)"),
    (JOB % ", grace: [5, soon]", "2:24", "jobs[0].grace: a duration is a number of seconds or a text such as 90s"),
    (JOB.replace("dur: 9", "dur: soon") % "", "2:16", "jobs[0].dur: a duration is a number of seconds"),
    (JOB % ", deadline: yesterday", "2:24", "jobs[0].deadline: a duration is a number of seconds"),
    (JOB % ", begin_at: true", "2:24", "jobs[0].begin_at: must be a number"),
    (JOB % ", max_wait: [1]", "2:24", "jobs[0].max_wait: must be a number"),
    (JOB % ", exempt_after: {}", "2:24", "jobs[0].exempt_after: must be a number"),
    (JOB % ", vram: big", "2:24", "jobs[0].vram: must be a number"),
    (JOB % ", vram_mib: [1]", "2:24", "jobs[0].vram_mib: must be a number"),
    (JOB % ", shares: two", "2:24", "jobs[0].shares: must be a number"),
    (JOB % "" + "variants: [{name: v, change: {a: {pri: x}}}]\n", "3:35", "must be a number"),
    (HEAD + "teams: {t: {quota: 101%}}\n", "2:13", "must be at most 100%"),
    (HEAD + "teams: {t: {limit: half}}\n", "2:13", "or per cent of the pool such as 25%"),
    (JOB.replace("dur: 9", "dur: -1") % ", time_limit: 9", "2:16", "-1 is no number of seconds"),
    (JOB.replace("dur: 9", "dur: .nan") % ", time_limit: 9", "2:16", "nan is no number of seconds"),
    (ACTION % "report_layout: {node: node-a, slices: {7g: -1}}", "3:58", "'7g' is no MIG profile such as 1g.5gb"),
    (ACTION % "report_layout: {node: node-a, slices: {7g.40gb: -1}}", "3:58", "greater than or equal to 0"),
    (ACTION % "report_layout: {node: b, slices: {}}", "3:35", "there is no node b"),
    ("cluster: {nodes: [a], slices: {x: 1e9}}\n", "1:32", "'x' is no MIG profile"),
    ("cluster: {nodes: [a], slices: {1g.5gb: 1e9}}\n", "1:32", "less than or equal to 64"),
    (JOB % ", placed: {node-a: -1}", "2:33", "greater than or equal to 1"),
    (JOB % ", placed: {node-z: 1}", "2:24", "there is no node node-z"),
    (JOB % ", placed: {node-a: 2}", "2:24", "node-a has no room for it"),
    (EXPECT % "during: [50, 10]", "3:25", "the first is not the later one"),
    (EXPECT % "during: 5", "3:25", "must be two times, such as [10, 50]"),
    (EXPECT % "within: -20", "3:25", "must be 0 or more, or cycle"),
    (EXPECT % "at: 5, during: [1, 2]", "3:10", "with `at` or with `during`"),
    (HEAD + "groups: {g: {}}\n", "2:10", "either max_down or min_available"),
    (HEAD + "groups: {g: {max_down: 1, min_available: 1}}\n", "2:10", "either max_down or min_available"),
    (JOB % "" + "variants: [{name: v}, {name: v}]\n", "3:24", "there is a variant v before it"),
    (ACTION % "cancel: a" + "until: 0.5\n", "3:12", "is after the end"),
    (ACTION % "cancel: a, preempt: a", "3:11", "one thing at a time, not cancel, preempt"),
    (ACTION % "set_policy: {classes: {scenario: null}}", "3:19", "scenario"),
    (JOB % "" + "variants: [{name: v, change: {job-9: {pri: 1}}}]\n", "3:31", "there is no such job"),
    (JOB % "" + "variants: [{name: v, change: {a: {at: -1}}}]\n", "3:35", "greater than or equal to 0"),
    (JOB % "" + "variants: [{name: v, jobs: [{id: b, needs: x}]}]\n", "3:37", "there is no node x"),
    ("jobs: [{id: a}]\n", "1:1", "there is no node"),
    (JOB % "" + "expect: [{state: }]\n", "3:10", "state is empty"),
    (ACTION % "preempt: b", "3:19", "there is no job b"),
    ("cluster: {nodes: [a], memory: 1e308}\n", "1:23", "less than or equal to 1000000"),
    (JOB % ", team: {}", "2:24", "must be a text or a list of texts"),
    (JOB % "" + "variants: {a: 1}\n", "3:1", "variants: must be a list"),
    (HEAD + "jobs: {a: 1}\n", "2:1", "jobs: must be a list"),
]


@pytest.mark.parametrize(("text", "place", "told"), REFUSED, ids=[told[:40] for _, _, told in REFUSED])
def test_it_is_refused_with_its_place(tmp_path: Path, text: str, place: str, told: str) -> None:
    path = tmp_path / "story.yaml"
    path.write_text(text)
    result = CliRunner().invoke(app, ["sim", "scenario", str(path)])
    assert result.exit_code == ExitCode.REFUSED, result.output
    assert f"story.yaml:{place}: " in result.stderr
    assert told in result.stderr
    assert not any(inner in result.stderr for inner in ("_kind", "pydantic", "Value error", "python, train.py"))


@pytest.mark.parametrize(
    "job",
    [
        "members: 1000000000 x 1", "members: 1000000000", "dur: -1", "dur: .nan", "pri: 1e30", "grace: -1",
        "vram: .inf", "deadline: -1", "begin_at: 50, deadline: 50", "begin_at: 1m, max_wait: 1m",
    ],
)  # fmt: skip
def test_a_job_that_a_submit_refuses_is_played_as_refused(tmp_path: Path, job: str) -> None:
    path = tmp_path / "story.yaml"
    path.write_text(HEAD + f"jobs: [{{id: a, {job}}}]\nexpect: [{{state: {{a: REJECTED}}}}]\n")
    result = CliRunner().invoke(app, ["sim", "scenario", str(path)])
    assert result.exit_code == 0, result.output
