"""The files of the study verbs: what they read is not written over, and what other programs write is read."""

import json
from pathlib import Path

import pytest
from makeway.exit_codes import ExitCode
from makeway.main import app
from typer.testing import CliRunner, Result

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
