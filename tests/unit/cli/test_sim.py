"""The study verbs on the command line: one JSON object on stdout, refusals as sentences, pages where asked."""

import json
from pathlib import Path

import pytest
import yaml
from makeway.exit_codes import ExitCode
from makeway.main import app
from makeway.policy_file import load_policy
from typer.testing import CliRunner, Result

MURI = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n0,8,0,100,bert,1000\n1,1,5000,10,dqn,1000\n"
SWF = "1 0 5 %s 2 -1 -1 2 60 -1 1 3 1 1 1 1 -1 -1\n"
"""One job of two processors, without its run time."""


def called(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(MURI)
    return path


@pytest.mark.parametrize("policy", ["srtf", "srsf", "tiresias-l", "makeway", "plain", "fifo", "round-robin"])
@pytest.mark.parametrize("cost", ["peer", "resume"])
def test_a_replay_prints_one_object_with_its_figures(trace: Path, policy: str, cost: str) -> None:
    result = called("replay", trace, "--format", "muri", "--policy", policy, "--cost", cost, "--output", "json")
    assert result.exit_code == 0
    figures = json.loads(result.stdout)
    assert {"average_jct_seconds", "p99_jct_seconds", "makespan_seconds", "preemptions", "gpu_utilisation"} <= set(
        figures
    )
    assert figures["jobs"] == 2


def test_a_policy_file_is_a_policy_too(trace: Path, tmp_path: Path) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_text("preset: plain\ndelta: 3\n")
    both = called("replay", trace, "--format", "muri", "--policy", policy, "--policy", "srtf", "--output", "json")
    assert [each["policy"] for each in json.loads(both.stdout)["replays"]] == [str(policy), "srtf"]


def test_a_broken_line_is_refused_by_place_or_skipped(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(MURI + "2,none,0,1,a,1\n")
    refused = called("replay", path, "--format", "muri")
    assert refused.exit_code == ExitCode.REFUSED
    assert f"{path}:4:3: num_gpu: 'none' is not a whole number" in refused.stderr
    skipped = called("replay", path, "--format", "muri", "--skip-broken", "--output", "json")
    assert json.loads(skipped.stdout)["skipped_lines"] == 1


def test_an_unknown_policy_or_cluster_is_refused(trace: Path) -> None:
    assert called("replay", trace, "--format", "muri", "--policy", "magic").exit_code == ExitCode.REFUSED
    bad = called("replay", trace, "--format", "muri", "--nodes", "8by8")
    assert bad.exit_code == ExitCode.REFUSED
    assert "such as 8x8" in bad.stderr


@pytest.mark.parametrize("nodes", ["", "99999999x8", "0x8", "1x" + "9" * 5000])
def test_a_cluster_beyond_all_bounds_is_refused(trace: Path, nodes: str) -> None:
    result = called("replay", trace, "--format", "muri", "--nodes", nodes)
    assert result.exit_code == ExitCode.REFUSED
    assert "at most 100000 GPUs" in result.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--checkpoint-interval", "nan"), ("--grace", "nan"), ("--grace", "1e300"), ("--restore-seconds", "inf"),
        ("--save-seconds", "nan"),
    ],
)  # fmt: skip
def test_an_option_that_is_no_number_is_refused_by_its_name(trace: Path, option: str, value: str) -> None:
    result = called("replay", trace, "--format", "muri", option, value)
    assert result.exit_code == ExitCode.USAGE
    assert option in result.stderr


def test_a_policy_that_is_neither_preset_nor_file_is_told_what_there_is() -> None:
    compared = called("sim", "compare", "default", "nope")
    assert compared.exit_code == ExitCode.REFUSED
    assert "nope: is neither a file nor a preset; presets are default, plain, fifo, round-robin" in compared.stderr
    assert "srtf" in compared.stderr
    checked = called("policy", "check", "fifoo")
    assert (checked.exit_code, "presets are default" in checked.stderr) == (ExitCode.REFUSED, True)


def test_weights_and_fixed_values_of_a_search_are_numbers() -> None:
    weight = called("sim", "tune", "--alpha", "nan")
    assert (weight.exit_code, "--alpha" in weight.stderr) == (ExitCode.USAGE, True)
    fixed = called("sim", "tune", "--fix", "progress_weight=nan")
    assert (fixed.exit_code, "progress_weight=nan" in fixed.stderr) == (ExitCode.REFUSED, True)


def test_a_report_is_written_where_asked(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert called("replay", trace, "--format", "muri", "--report", page).exit_code == 0
    assert "<svg" in page.read_text()


def test_openb_prints_allocated_percent_by_load(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,8000,100,10,T4\n")
    (tmp_path / "openb_pod_list_tiny.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1,1,1,1000\n")
    orders = tmp_path / "mine.jsonl"
    orders.write_text(json.dumps({"workload": "openb_pod_list_tiny", "seed": 1, "order": [0] * 13}) + "\n")
    result = called(
        "replay", tmp_path, "--format", "openb", "--workload", "tiny", "--policy", "frag", "--orders", orders,
        "--output", "json",
    )  # fmt: skip
    shares = json.loads(result.stdout)["allocated_percent"]
    assert shares["80"] == {"mean": 80.0, "sd": 0.0}
    assert shares["130"]["mean"] == 100.0


def test_compare_sets_two_policies_side_by_side() -> None:
    result = called("sim", "compare", "plain", "fifo", "--jobs", "30", "--nodes", "1x4", "--output", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["figures"]["jobs"] == {"a": 30.0, "b": 30.0, "change_percent": 0.0}


def test_the_demo_is_a_table() -> None:
    result = called("sim", "demo")
    told = " ".join(result.stderr.split())
    assert (
        "GPU-seconds lost are held by jobs but brought none on: starts, saves, and work done again or for nothing"
        in told
    )
    assert result.exit_code == 0
    assert "CHECKPOINT, graceful" in result.stdout


def test_tune_writes_a_policy_file_that_loads(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    result = called(
        "sim", "tune", "--jobs", "12", "--nodes", "1x4", "--trials", "2", "--fix", "delta=4", "--write", path,
        "--output", "json",
    )  # fmt: skip
    assert result.exit_code == 0
    assert json.loads(result.stdout)["tried"] == 3
    assert load_policy(str(path)).policy.delta == yaml.safe_load(path.read_text())["delta"] == 4


SCENARIO = """
cluster: {nodes: [node-a]}
jobs:
  - {id: low, pri: 1, dur: 100}
  - {id: high, pri: 9, dur: 10, at: 10}
expect:
  - {evicted: low}
  - {started_at: {high: 15}, within: 0}
"""


def test_a_scenario_goes_as_its_file_says(tmp_path: Path) -> None:
    path = tmp_path / "story.yaml"
    path.write_text(SCENARIO)
    result = called("sim", "scenario", path, "--output", "json")
    assert result.exit_code == 0
    (found,) = json.loads(result.stdout)["scenarios"]
    assert found["name"] == "story"
    assert [each["good"] for each in found["expectations"]] == [True, True, True]
    starts = [(each["at"], each["job"]) for each in found["timeline"] if each["what"].startswith("starts")]
    assert starts == [(0, "low"), (15, "high"), (25, "low")]
    assert "low" in called("sim", "scenario", path).stdout


def test_a_scenario_that_goes_otherwise_is_exit_code_1(tmp_path: Path) -> None:
    path = tmp_path / "story.yaml"
    path.write_text(SCENARIO.replace("evicted: low", "evictions: 0"))
    result = called("sim", "scenario", "--quiet", path)
    assert result.exit_code == 1
    assert "1 evictions: low" in result.stdout


def test_a_scenario_under_another_policy(tmp_path: Path) -> None:
    path = tmp_path / "story.yaml"
    path.write_text("cluster: {nodes: [node-a]}\njobs: [{id: a, dur: 9}, {id: b, dur: 9}]\nexpect: [{evictions: 0}]\n")
    assert called("sim", "scenario", "--policy", "fifo", path).exit_code == 0


@pytest.mark.parametrize(
    ("old", "new", "place", "told"),
    [
        ("dur: 100", "duration: 100", "4:23", "jobs[0].duration: unknown field; did you mean dur?"),
        ("within: 0", "wihtin: 0", "8:30", "wihtin: unknown field; did you mean within?"),
        ("evicted: low", "evicted: lwo", "7:6", "there is no job lwo"),
        ("dur: 100", "dur: [1, 2]", "4:23", "2 values for 1 name"),
        ("id: high", "id: low", "3:1", "given twice: low"),
    ],
)
def test_what_a_scenario_cannot_mean_is_refused_by_name_and_place(
    tmp_path: Path, old: str, new: str, place: str, told: str
) -> None:
    path = tmp_path / "story.yaml"
    path.write_text(SCENARIO.replace(old, new, 1))
    result = called("sim", "scenario", path)
    assert result.exit_code == ExitCode.REFUSED
    assert f"story.yaml:{place}" in result.stderr
    assert told in result.stderr


@pytest.mark.parametrize(
    ("arguments", "option", "why"),
    [
        (["replay", "T", "--format", "muri", "--seeds", "2"], "--seeds", "with --format muri"),
        (["replay", "T", "--orders", "f", "--workload", "x"], "--workload, --orders", "with --format events"),
        (["replay", "T", "--format", "openb", "--nodes", "8x8"], "--nodes", "with --format openb"),
        (["replay", "T", "--format", "openb", "--cost", "peer"], "--cost", "with --format openb"),
        (["replay", "T", "--format", "openb", "--grace", "3"], "--grace", "with --format openb"),
        (["replay", "T", "--policy", "srtf", "--mode", "cancel"], "--mode", "under srtf, which"),
        (["sim", "replay", "T", "--policy", "srtf", "--policy", "srsf", "--grace", "3"], "--grace", "srtf and srsf,"),
        (["sim", "compare", "srtf", "srsf", "--save-seconds", "3"], "--save-seconds", "under srtf and srsf, which"),
        (["sim", "compare", "fifo", "plain", "--trace", "T", "--jobs", "3"], "--jobs", "with --trace"),
        (["sim", "compare", "fifo", "plain", "--trace", "T", "--seed", "3"], "--seed", "with --trace"),
        (["sim", "compare", "fifo", "plain", "--format", "muri"], "--format", "without --trace"),
        (["sim", "tune", "--skip-broken"], "--skip-broken", "without --trace"),
        (["sim", "tune", "--trace", "T", "--jobs", "3"], "--jobs", "with --trace"),
        (["sim", "demo", "--mode", "cancel"], "--mode", "without --report"),
        (["sim", "scenario", "F", "--quiet", "--output", "json"], "--quiet", "with --output json"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused_by_name(arguments: list[str], option: str, why: str) -> None:
    refused = called(*arguments)
    assert refused.exit_code == ExitCode.USAGE
    told = " ".join(refused.stderr.replace("│", " ").split())
    assert f"Invalid value for {option}: means nothing" in told
    assert why in told


def test_an_option_counts_where_one_policy_of_several_knows_it(trace: Path) -> None:
    both = ("--policy", "srtf", "--policy", "plain")
    assert called("replay", trace, "--format", "muri", *both, "--grace", "3").exit_code == 0


@pytest.mark.parametrize(
    "study",
    [["replay", "T"], ["replay", "T", "--policy", "srtf"], ["sim", "compare", "fifo", "plain", "--trace", "T"],
     ["sim", "tune", "--trace", "T"]],
)  # fmt: skip
@pytest.mark.parametrize(
    ("trace_format", "text"),
    [("events", ""), ("swf", "; MaxNodes: 4\n"), ("swf", SWF % "-1"), ("muri", MURI.split("\n")[0])],
)
def test_a_trace_without_a_job_is_refused_by_name(
    tmp_path: Path, study: list[str], trace_format: str, text: str
) -> None:
    path = tmp_path / "empty"
    path.write_text(text)
    refused = called(*(path if word == "T" else word for word in study), "--format", trace_format)
    assert refused.exit_code == ExitCode.REFUSED, refused.output
    assert f"{path}: has no job to replay, read as {trace_format}" in refused.stderr


@pytest.mark.parametrize(
    ("header", "nodes"),
    [
        ("; MaxNodes: 2\n;  MaxProcs:  8\n", "2x4"), ("; MaxProcs: 6\n", "6x1"), ("; MaxNodes: 3\n", "3x1"),
        ("; MaxNodes: 4\n; MaxProcs: 6 (two were sold)\n", "6x1"), ("; Computer: x\n; MaxProcs: -1\n", None),
    ],
)  # fmt: skip
def test_a_trace_runs_on_the_cluster_that_its_header_names(tmp_path: Path, header: str, nodes: str | None) -> None:
    path = tmp_path / "machine.swf"
    path.write_text(header + SWF % "60")
    replayed = called("replay", path, "--format", "swf", "--output", "json")
    assert json.loads(replayed.stdout)["nodes"] == (nodes or "8x8")
    compared = called("sim", "compare", "fifo", "plain", "--trace", path, "--format", "swf", "--output", "json")
    assert json.loads(compared.stdout)["nodes"] == (nodes or "4x8")
    chosen = called("replay", path, "--format", "swf", "--nodes", "3x5", "--output", "json")
    assert json.loads(chosen.stdout)["nodes"] == "3x5"


def test_counts_are_whole_in_a_comparison_and_all_else_has_three_places(trace: Path) -> None:
    arguments = ("sim", "compare", "plain", "fifo", "--trace", trace, "--format", "muri")
    rows = {row.split()[0]: row.split()[1:3] for row in called(*arguments).stdout.splitlines()}
    assert rows["jobs"] == ["2", "2"]
    assert {"preemptions", "refused"} == {name for name, cells in rows.items() if cells[0] == "0"}
    assert rows["gpu_utilisation"][0].count(".") == 1
    figures = json.loads(called(*arguments, "--output", "json").stdout)["figures"]
    assert str(figures["jobs"]["a"]) == "2"
