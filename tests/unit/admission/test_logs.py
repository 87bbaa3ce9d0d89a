"""Where the last lines of a job's runs begin."""

from pathlib import Path

import pytest
from makeway_admission import logs
from makeway_admission.log_store import LogStore
from makeway_admission.logs import Run

JOB = "0123456789ab"


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 128 * 1024])
@pytest.mark.parametrize(
    "contents",
    [
        (b"a\nb\nc\n",),
        (b"a\nb\nc",),
        (b"\n\n\n",),
        (b"a\nb\n", b"c\nd"),
        (b"a\nb", b"c\n", b"", b"d\ne\n"),
        (b"",),
        (b"no newline at all",),
    ],
)
def test_the_last_lines_are_those_that_splitting_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contents: tuple[bytes, ...], chunk_bytes: int
) -> None:
    monkeypatch.setattr(logs, "CHUNK_BYTES", chunk_bytes)
    store = LogStore(tmp_path, run_max_bytes=10_000)
    runs = []
    for number, content in enumerate(contents, 1):
        run_id = f"{JOB}.{number}"
        if content:
            store.append(run_id, 0, content)
        runs.append(Run(number=number, run_id=run_id, ended=True, expected=len(content)))
    # A run's last line ends with the run, with or without a newline.
    lines = [line for content in contents for line in content.splitlines(keepends=True)]
    for wanted in range(len(lines) + 2):
        number, offset = logs._tail_start(store, runs, wanted)
        shown = contents[number - 1][offset:] + b"".join(contents[number:])
        assert shown == b"".join(lines[max(0, len(lines) - wanted) :] if wanted else []), wanted
