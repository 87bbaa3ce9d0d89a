"""What a command does where its streams are closed, full, or no files at all."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from api_stub import Answer, Makeway, StubServer, sse

EVENT = {
    "sequence": 1,
    "job_id": "0123456789ab",
    "at": "2026-01-01T00:00:00Z",
    "kind": "queued",
    "state": "QUEUED",
    "run": None,
    "data": {},
}


def shell(makeway: Makeway, line: str) -> subprocess.CompletedProcess[str]:
    """A command line with redirections."""
    line = line.replace("makeway", f"{sys.executable} -m makeway.main")
    return subprocess.run(
        ["bash", "-c", line], env=makeway.environment, cwd=makeway.folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def history(server: StubServer) -> StubServer:
    server.on("GET", "/v1/events", Answer(pieces=sse(EVENT)))
    return server


@pytest.mark.parametrize("line", ["makeway node list > /dev/full", "makeway export > /dev/full"])
def test_a_result_that_cannot_be_written_is_said_and_no_refusal(
    history: StubServer, makeway: Makeway, line: str
) -> None:
    history.on("GET", "/v1/nodes", [])
    result = shell(makeway, line)
    assert (result.returncode, "No space left" in result.stderr) == (1, True)
    assert "Traceback" not in result.stderr


def test_without_a_stdout_nothing_is_printed(server: StubServer, makeway: Makeway) -> None:
    server.on("GET", "/v1/nodes", [])
    result = shell(makeway, "makeway node list >&-")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("line", ["submit --file -", "submit --script -", "policy check -"])
def test_a_stdin_that_is_closed_is_said(server: StubServer, makeway: Makeway, line: str) -> None:
    result = shell(makeway, f"makeway {line} <&-")
    assert (result.returncode, "stdin is closed" in result.stderr) == (120, True)
    assert "Traceback" not in result.stderr


def test_an_export_whose_reader_goes_away_is_well(history: StubServer, makeway: Makeway) -> None:
    result = shell(makeway, "set -o pipefail; makeway export | true")
    assert (result.returncode, "Traceback" in result.stderr) == (0, False)


def test_an_export_to_what_is_no_file_leaves_it_what_it_is(history: StubServer, makeway: Makeway) -> None:
    pipe = makeway.folder / "pipe"
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()), daemon=True)
    reader.start()
    assert makeway("export", str(pipe)).returncode == 0
    reader.join(timeout=20)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert '"sequence":1' in heard[0]


def test_an_export_to_a_link_goes_where_it_leads(history: StubServer, makeway: Makeway) -> None:
    link: Path = makeway.folder / "link"
    link.symlink_to("file")
    assert makeway("export", str(link)).returncode == 0
    assert link.is_symlink()
    assert '"sequence":1' in (makeway.folder / "file").read_text()
