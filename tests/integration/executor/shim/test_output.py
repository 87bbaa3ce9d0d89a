"""The log: complete to the last byte, capped with its head and tail, and never a reason for a job to stop."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

from shim_runs import Shims, until

MIB = 1024 * 1024


def feed(fifo: Path) -> None:
    """Lets a job go on that waits to read from `fifo`."""
    with fifo.open("w"):
        pass


def test_twenty_mib_in_the_last_moment_arrive_whole_without_a_last_newline(shims: Shims) -> None:
    run = shims.python("import sys; sys.stdout.write('0123456789abcde\\n' * (20 << 16) + 'BYE')")
    end = run.end()
    assert end["log_bytes"] == 20 * MIB + 3
    assert run.log() == b"0123456789abcde\n" * (20 << 16) + b"BYE"


def test_output_and_errors_keep_their_order(shims: Shims) -> None:
    run = shims.shell("echo one; echo two >&2; echo three")
    run.end()
    assert run.log() == b"one\ntwo\nthree\n"


def test_a_capped_log_keeps_head_and_tail_and_says_the_gap(shims: Shims) -> None:
    run = shims.python(
        "import sys\nfor n in range(100000): sys.stdout.write('%09d\\n' % n)",
        log_head_bytes=1000,
        log_tail_bytes=2000,
    )
    end = run.end()
    left_out = 1_000_000 - 3000
    gap = f"\n[makeway: {left_out} bytes left out here]\n".encode()
    head = b"".join(b"%09d\n" % n for n in range(100))
    tail = b"".join(b"%09d\n" % n for n in range(99800, 100000))
    assert run.log() == head + gap + tail
    assert (end["log_bytes"], end["log_dropped_bytes"]) == (3000 + len(gap), left_out)
    assert not (run.folder.path / "output.tail").exists()


def test_a_log_that_just_fits_has_no_gap(shims: Shims) -> None:
    run = shims.python("print('x' * 2999)", log_head_bytes=1000, log_tail_bytes=2000)
    end = run.end()
    assert run.log() == b"x" * 2999 + b"\n"
    assert end["log_dropped_bytes"] == 0


def test_no_output_makes_no_log(shims: Shims) -> None:
    run = shims.start("/bin/true")
    assert run.end()["log_bytes"] == 0
    assert not run.folder.log_path().exists()


def test_a_stranger_who_holds_the_pipe_does_not_keep_the_run_open(shims: Shims) -> None:
    os.mkfifo(shims.root / "gate")
    run = shims.shell("echo hello; read line < gate")
    pid = run.event("started")["pid"]
    until(run.log)
    stranger = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY)
    feed(shims.root / "gate")
    end = run.end()
    os.close(stranger)
    assert end["log_bytes"] == 6


def full_disk(name: str) -> Callable[[Path], None]:
    """/dev/full answers every write as a full disk does."""
    return lambda folder: (folder / name).symlink_to("/dev/full")


def test_a_full_disk_costs_log_bytes_and_not_the_job(shims: Shims) -> None:
    run = shims.shell("echo lost; exit 5", prepare=full_disk("output.log"))
    end = run.end()
    assert (end["exit_code"], end["log_bytes"], end["log_lost_bytes"]) == (5, 0, 5)


def test_once_there_is_room_again_the_log_says_what_it_lost(shims: Shims) -> None:
    """A file size limit stands for the full disk here: it can be lifted for a running process."""
    first, second = shims.root / "first", shims.root / "second"
    os.mkfifo(first)
    os.mkfifo(second)
    run = shims.shell("read line < first; echo lost; read line < second; echo kept")
    run.event("started")
    before = resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    feed(first)
    until(lambda: run.folder.log_path().exists())
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, before)
    feed(second)
    end = run.end()
    assert run.log() == b"\n[makeway: 5 bytes lost here: File too large]\nkept\n"
    assert end["log_lost_bytes"] == 5


def test_a_full_disk_in_the_tail_leaves_a_sound_tail(shims: Shims) -> None:
    run = shims.python("print('x' * 5000)", log_head_bytes=1000, log_tail_bytes=2000, prepare=full_disk("output.tail"))
    end = run.end()
    assert run.log() == b"x" * 1000 + b"\n[makeway: 4001 bytes left out here]\n"
    assert end["log_dropped_bytes"] == 4001


def test_the_end_is_to_be_had_on_the_socket_and_written_once_there_is_room(shims: Shims) -> None:
    run = shims.shell("exit 6", prepare=lambda folder: (folder / "end.json.new").mkdir())
    assert run.event("end")["exit_code"] == 6
    assert run.folder.read_end() is None
    assert run.folder.try_lock() is None
    run.reconnect()
    assert run.event("end")["exit_code"] == 6
    (run.folder.path / "end.json.new").rmdir()
    until(run.exited)
    assert run.folder.read_end()["exit_code"] == 6


def test_a_shim_whose_folder_was_removed_does_not_stay(shims: Shims) -> None:
    run = shims.shell("exit 6", prepare=lambda folder: (folder / "end.json.new").mkdir())
    run.event("end")
    run.folder.remove()
    until(run.exited)
