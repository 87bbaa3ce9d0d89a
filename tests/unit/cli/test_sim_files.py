"""The files of the study verbs: what they read is not written over, and what other programs write is read."""

import gzip
import json
from pathlib import Path

import pytest
from makeway.exit_codes import ExitCode
from makeway.main import app
from typer.testing import CliRunner, Result

EVENTS = """{"job_id": "a", "at": 0, "kind": "queued", "state": "QUEUED", "run": null, "data": {"gpus": 1}}
{"job_id": "a", "at": 1, "kind": "running", "state": "RUNNING", "run": 1, "data": {}}
{"job_id": "a", "at": 5, "kind": "succeeded", "state": "SUCCEEDED", "run": 1, "data": {}}
"""
ITP = "job_id,submission_time,duration,num_gpu\n1,0,5,1\n"
SACCT = "JobID|Submit|ElapsedRaw|AllocTRES\n1|2026-01-01T00:00:00|5|gres/gpu=1\n"
SWF = "%s1 0 5 60 2 -1 -1 2 60 -1 1 3 1 1 1 1 -1 -1\n"
"""One job of two processors, under a header."""
BOM = "\ufeff"
"""What some programs begin a file with."""
MURI = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n0,8,0,100,bert,1000\n1,1,5000,10,dqn,1000\n"
POLICY = "preset: plain\ndelta: 3\n"


def called(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("trace.csv").write_text(MURI)
    Path("mine.yaml").write_text(POLICY)
    Path("link.csv").symlink_to("trace.csv")
    Path("openb").mkdir()
    Path("openb/openb_node_list_gpu_node.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,8000,100,10,T4\n")
    Path("openb/openb_pod_list_tiny.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1,1,1,1000\n")
    order = {"workload": "openb_pod_list_tiny", "seed": 1, "order": [0] * 13}
    Path("orders.jsonl").write_text(json.dumps(order) + "\n")
    return tmp_path


def of_openb(orders: str) -> list[str]:
    return ["replay", "openb", "--format", "openb", "--workload", "tiny", "--orders", orders]


@pytest.mark.parametrize(
    ("arguments", "option", "target"),
    [
        (["replay", "trace.csv", "--format", "muri"], "--report", "trace.csv"),
        (["replay", "trace.csv", "--format", "muri"], "--report", "./openb/../trace.csv"),
        (["replay", "trace.csv", "--format", "muri"], "--report", "link.csv"),
        (["replay", "link.csv", "--format", "muri"], "--report", "trace.csv"),
        (["replay", "trace.csv", "--format", "muri", "--policy", "plain", "--policy", "mine.yaml"], "--report",
         "mine.yaml"),
        (of_openb("orders.jsonl"), "--report", "orders.jsonl"),
        (of_openb("orders.jsonl"), "--report", "openb/openb_pod_list_tiny.csv"),
        (["sim", "tune", "mine.yaml", "--trials", "1", "--jobs", "5"], "--write", "mine.yaml"),
        (["sim", "tune", "--trace", "trace.csv", "--format", "muri", "--trials", "1"], "--write", "trace.csv"),
    ],
)  # fmt: skip
def test_what_is_read_is_not_written_over(arguments: list[str], option: str, target: str) -> None:
    before = Path(target).read_text()
    refused = called(*arguments, option, target)
    assert refused.exit_code == ExitCode.USAGE, refused.output
    told = " ".join(refused.stderr.replace("│", " ").split())
    assert f"Invalid value for {option}: would overwrite" in told
    assert Path(target).read_text() == before


def test_any_other_file_is_written_over(folder: Path) -> None:
    Path("plain").write_text("a file that has a preset's name")
    Path("openb/page.html").write_text("of yesterday")
    for arguments, target in (
        (["replay", "trace.csv", "--format", "muri", "--policy", "plain"], "plain"),
        (of_openb("orders.jsonl"), "openb/page.html"),
        (["replay", "trace.csv", "--format", "muri"], "/dev/null"),
    ):
        assert called(*arguments, "--report", target).exit_code == 0
    assert "<svg" in Path("plain").read_text()


@pytest.mark.parametrize("end", [".txt", ".gz"])
@pytest.mark.parametrize(
    ("trace_format", "text"),
    [("events", EVENTS), ("muri", MURI), ("itp", ITP), ("sacct", SACCT), ("swf", SWF % ""),
     ("swf", SWF % "; MaxNodes: 2\n")],
)  # fmt: skip
def test_a_mark_before_the_first_line_is_no_part_of_it(folder: Path, trace_format: str, text: str, end: str) -> None:
    replayed = []
    for mark in ("", BOM):
        path = folder / f"marked{end}"
        whole = (mark + text).encode()
        path.write_bytes(gzip.compress(whole) if end == ".gz" else whole)
        result = called("replay", str(path), "--format", trace_format, "--output", "json")
        assert result.exit_code == 0, result.output
        replayed.append(json.loads(result.stdout))
    assert replayed[0] == replayed[1]


def test_files_of_openb_may_begin_with_a_mark(folder: Path) -> None:
    for path in (*folder.glob("openb/*"), folder / "orders.jsonl"):
        path.write_text(BOM + path.read_text())
    assert called(*of_openb("orders.jsonl")).exit_code == 0


@pytest.mark.parametrize(
    "header", ["; maxnodes: 3\n; MAXPROCS: 12\n", "; MaxNodes: 3\n; MaxNodes: 1\n; maxprocs: 12\n"]
)
def test_the_header_of_an_swf_trace_is_read_in_any_case(header: str) -> None:
    Path("machine.swf").write_text(SWF % header)
    replayed = called("replay", "machine.swf", "--format", "swf", "--output", "json")
    assert json.loads(replayed.stdout)["nodes"] == "3x4"


@pytest.mark.parametrize(
    "arguments",
    [["replay", "trace.csv", "--format", "muri", "--policy", ""], ["policy", "check", ""], ["sim", "tune", ""],
     ["sim", "compare", "", "plain"]],
)  # fmt: skip
def test_a_policy_without_a_name_is_refused_as_that(arguments: list[str]) -> None:
    refused = called(*arguments)
    assert refused.exit_code == ExitCode.REFUSED
    assert "the policy's name is empty; it is a file or a preset: default, plain" in refused.stderr


def test_a_scenario_without_a_name_is_refused_as_that() -> None:
    refused = called("sim", "scenario", "")
    assert (refused.exit_code, "the name of the file is empty" in refused.stderr) == (ExitCode.REFUSED, True)


def test_a_value_that_is_fixed_twice_is_refused_by_name() -> None:
    refused = called("sim", "tune", "--fix", "delta=5", "--fix", "delta=6", "--jobs", "3", "--trials", "1")
    assert refused.exit_code == ExitCode.REFUSED
    assert "delta is fixed twice" in refused.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", ""),
        ("replay", "--format", "openb", ".", "--orders", ""),
        ("sim", "compare", "plain", "fifo", "--trace", ""),
    ],
)
def test_a_file_without_a_name_is_no_folder(arguments: tuple[str, ...]) -> None:
    refused = called(*arguments)
    assert refused.exit_code == 2
    assert "the name of the file is empty" in refused.stderr
