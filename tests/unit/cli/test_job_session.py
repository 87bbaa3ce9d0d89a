"""A job's session: saves in the background, acks what is on disk, hears the notice, declares done at a normal end."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_stub import Makeway
from job_stub import ControlSocket

PROGRAM = """
import sys
import makeway.job

with makeway.job.session(keep=2) as job:
    saved = job.resume()
    print("resumed" if saved else "fresh", saved.step if saved else 0, "run", job.run, flush=True)
    {body}
"""


@pytest.fixture
def control() -> Iterator[ControlSocket]:
    with tempfile.TemporaryDirectory(prefix="mw-") as short:  # a socket's path has at most 107 bytes
        stub = ControlSocket(Path(short) / "s")
        yield stub
        stub.close()


@pytest.fixture(autouse=True)
def started() -> Iterator[None]:
    """No process of a failed test stays behind."""
    yield
    for process in STARTED:
        with process:
            process.kill()
    STARTED.clear()


STARTED: list[subprocess.Popen[str]] = []


def start(folder: Path, body: str, control: ControlSocket | None = None, run: int = 1) -> subprocess.Popen[str]:
    """A program of few lines, run as a job, or as a plain program where there is no socket."""
    environment = {"PATH": os.environ["PATH"], "MAKEWAY_CHECKPOINT_DIR": str(folder), "MAKEWAY_GRACE_SECONDS": "30"}
    if control is not None:
        environment |= {"MAKEWAY_CONTROL": str(control.path), "MAKEWAY_RUN": str(run)}
    command = [sys.executable, "-c", PROGRAM.format(body=body)]
    pipe = subprocess.PIPE
    STARTED.append(subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, cwd=folder))
    return STARTED[-1]


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def test_what_is_saved_is_acked_and_a_normal_end_is_declared(tmp_path: Path, control: ControlSocket) -> None:
    code, out, err = finish(start(tmp_path, "job.save(3, {'x': 1}, epoch=1, fraction=0.25)", control))
    assert (code, out, err) == (0, "fresh 0 run 1\n", "")
    ack, done = control.operations()
    assert ack | {"bytes": 0} == {"op": "ack", "step": 3, "bytes": 0, "epoch": 1, "fraction": 0.25}
    assert ack["bytes"] == (tmp_path / "run-1-step-3.checkpoint").stat().st_size
    assert done == {"op": "done"}


def test_a_resume_is_reported_with_its_load_time(tmp_path: Path, control: ControlSocket) -> None:
    finish(start(tmp_path, "job.save(3, 'x')", control))
    control.said.clear()
    _, out, _ = finish(start(tmp_path, "pass", control, run=2))
    assert out == "resumed 3 run 2\n"
    resumed = control.operations()[0]
    assert (resumed["op"], resumed["step"], resumed["load_seconds"] >= 0) == ("resumed", 3, True)


WAIT_FOR_STOP = """
    import threading
    heard = threading.Event()
    job.on_stop(heard.set)
    print("ready", flush=True)
    assert heard.wait(20)
    print("stop", job.stop_requested(), 0 < job.grace_left() <= 30, flush=True)
    job.save(9, "last", wait=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_the_notice_is_heard_by_signal_and_nothing_is_declared_done(
    tmp_path: Path, control: ControlSocket, number: signal.Signals
) -> None:
    process = start(tmp_path, WAIT_FOR_STOP, control)
    assert process.stdout is not None
    assert [process.stdout.readline(), process.stdout.readline()] == ["fresh 0 run 1\n", "ready\n"]
    process.send_signal(number)
    assert finish(process) == (0, "stop True True\n", "")
    assert [message["op"] for message in control.operations()] == ["ack"]


def test_the_notice_is_heard_by_the_socket_too(tmp_path: Path, control: ControlSocket) -> None:
    process = start(tmp_path, WAIT_FOR_STOP, control)
    assert process.stdout is not None
    assert [process.stdout.readline(), process.stdout.readline()] == ["fresh 0 run 1\n", "ready\n"]
    control.stop()
    assert finish(process) == (0, "stop True True\n", "")


def test_finished_work_can_be_declared_done_after_the_notice(tmp_path: Path, control: ControlSocket) -> None:
    process = start(tmp_path, WAIT_FOR_STOP + "    job.done()\n", control)
    control.stop()
    assert finish(process)[0] == 0
    assert [message["op"] for message in control.operations()] == ["ack", "done"]


WORKER = """
    import os, time
    worker = os.fork()
    if worker == 0:
        print(os.getpid(), flush=True)
        while True:
            time.sleep(0.01)
    _, status = os.waitpid(worker, 0)
    print("worker ended by signal", os.WTERMSIG(status), flush=True)
    job.declared_done = True
"""


def worker_of(process: subprocess.Popen[str]) -> int:
    """The worker's process id, once it runs."""
    assert process.stdout is not None
    process.stdout.readline()
    return int(process.stdout.readline())


def test_a_forked_worker_dies_of_a_signal_that_is_no_notice(tmp_path: Path, control: ControlSocket) -> None:
    process = start(tmp_path, WORKER, control)
    os.kill(worker_of(process), signal.SIGTERM)
    assert finish(process)[1] == "worker ended by signal 15\n"


def test_a_forked_worker_lets_the_notice_pass_once(tmp_path: Path, control: ControlSocket) -> None:
    process = start(tmp_path, WORKER, control)
    worker = worker_of(process)
    control.stop()
    os.kill(worker, signal.SIGTERM)
    control.wait_for("status")
    assert process.poll() is None
    assert signal_is_default(worker, signal.SIGTERM)
    os.kill(worker, signal.SIGTERM)
    assert finish(process)[1] == "worker ended by signal 15\n"


def signal_is_default(pid: int, number: signal.Signals) -> bool:
    """Whether the process catches the signal no more (the mask SigCgt of its /proc status)."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
    return not caught >> (number - 1) & 1


def test_an_exception_is_no_normal_end(tmp_path: Path, control: ControlSocket) -> None:
    code, _, err = finish(start(tmp_path, "job.save(1, 'x'); raise ValueError('mine')", control))
    assert code == 1
    assert "ValueError: mine" in err
    assert [message["op"] for message in control.operations()] == ["ack"]


def test_outside_makeway_everything_works_and_nothing_is_said(tmp_path: Path) -> None:
    code, out, err = finish(start(tmp_path, "job.save(3, 'x'); print(job.stop_requested(), job.grace_left())"))
    assert (code, out, err) == (0, "fresh 0 run 1\nFalse None\n", "")
    assert finish(start(tmp_path, "pass"))[1] == "resumed 3 run 2\n"


def test_a_superseded_run_is_told_at_its_next_save(tmp_path: Path, control: ControlSocket) -> None:
    body = "open('run', 'w').write('2'); job.save(1, 'x')\n    job.save(2, 'y', wait=True)"
    code, _, err = finish(start(tmp_path, body, control))
    assert code == 1
    assert "Superseded: run 2 owns" in err
    assert control.operations() == []


def test_an_ack_that_is_refused_costs_nothing_but_a_line(tmp_path: Path, control: ControlSocket) -> None:
    control.refuse = "not kept: No space left on device"
    code, _, err = finish(start(tmp_path, "job.save(1, 'x', wait=True); print('goes on')\n    sys.exit(4)", control))
    assert code == 4
    assert "ack was refused: not kept: No space left on device" in err


NUMBERS_OF_ANOTHER_LIBRARY = """
    import numpy as np
    job.save(np.int64(5), "x", epoch=np.int64(1), fraction=np.float32(0.5), wait=True)
    job.save(np.uint8(6), "x", epoch=np.float32(1.5), fraction=np.array(0.75), wait=True)
"""


def test_numbers_of_another_library_are_taken(tmp_path: Path, control: ControlSocket) -> None:
    assert finish(start(tmp_path, NUMBERS_OF_ANOTHER_LIBRARY, control)) == (0, "fresh 0 run 1\n", "")
    first, second, done = control.operations()
    assert (first["step"], first["epoch"], first["fraction"]) == (5, 1, 0.5)
    assert (second["step"], second["epoch"], second["fraction"]) == (6, 1.5, 0.75)
    assert done == {"op": "done"}
    assert finish(start(tmp_path, "print(type(saved.step), saved.epoch)"))[1] == "resumed 6 run 2\n<class 'int'> 1.5\n"


def test_an_ack_of_its_own_takes_them_too(tmp_path: Path, control: ControlSocket) -> None:
    numbers = "np.int64(5), size_bytes=np.int64(7), fraction=np.float32(0.5), epoch=np.int64(1)"
    body = (
        f"import numpy as np; makeway.job.ack({numbers}); makeway.job.resumed(np.int64(5), load_seconds=np.float32(2))"
    )
    assert finish(start(tmp_path, body, control))[0] == 0
    ack, resumed, _ = control.operations()
    assert ack == {"op": "ack", "step": 5, "bytes": 7, "fraction": 0.5, "epoch": 1}
    assert resumed == {"op": "resumed", "step": 5, "load_seconds": 2.0}


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ("'5', 'x'", "step must be a whole number, not str"),
        ("5.0, 'x'", "step must be a whole number, not float"),
        ("None, 'x'", "step must be a whole number, not NoneType"),
        ("1, 'x', epoch='1.5'", "epoch must be a number or None, not str"),
        ("1, 'x', epoch=1j", "epoch must be a number or None, not complex"),
        ("1, 'x', fraction=[0.5]", "fraction must be a number or None, not list"),
    ],
)
def test_what_is_no_number_is_refused_by_name_at_the_call(tmp_path: Path, arguments: str, refusal: str) -> None:
    body = f"job.save(1, 'kept', wait=True)\n    job.save({arguments})"
    code, _, err = finish(start(tmp_path, body))
    assert (code, err.splitlines()[-1]) == (1, f"TypeError: {refusal}")
    assert finish(start(tmp_path, "print(saved.state)"))[1].endswith("kept\n")


FAILS_ONCE = """
    write = job.folder.write
    def fail(snapshot):
        job.folder.write = write
        raise {error}
    job.folder.write = fail
"""


@pytest.mark.parametrize("error", ["ValueError('mine')", "MemoryError('mine')", "SystemExit('mine')"])
def test_whatever_fails_a_save_is_said_and_the_next_is_kept(tmp_path: Path, control: ControlSocket, error: str) -> None:
    body = FAILS_ONCE.format(error=error) + "    job.save(1, 'lost'); job._drain(); job.save(2, 'kept', wait=True)"
    code, _, err = finish(start(tmp_path, body, control))
    assert (code, err) == (0, "makeway.job: step 1 was not saved: mine\n")
    assert [message.get("step") for message in control.operations()] == [2, None]


@pytest.mark.parametrize("error", ["ValueError('mine')", "MemoryError('mine')", "SystemExit('mine')"])
def test_whatever_fails_a_save_that_is_waited_for_is_raised(tmp_path: Path, error: str) -> None:
    code, _, err = finish(start(tmp_path, FAILS_ONCE.format(error=error) + "    job.save(1, 'lost', wait=True)"))
    assert (code, err.splitlines()[-1]) == (1, "makeway.job.session.SaveFailed: the checkpoint was not kept: mine")


def test_a_failure_without_words_is_said_by_its_name(tmp_path: Path) -> None:
    _, _, err = finish(start(tmp_path, FAILS_ONCE.format(error="MemoryError") + "    job.save(1, 'lost', wait=True)"))
    assert err.startswith("makeway.job: step 1 was not saved: MemoryError()\n")
    assert err.endswith("SaveFailed: the checkpoint was not kept: MemoryError()\n")


def test_a_reason_that_cannot_be_said_fails_the_save_alone(tmp_path: Path) -> None:
    body = "job.save(10**5000, 'lost'); job._drain(); job.save(2, 'kept', wait=True)"  # too long to be printed
    assert finish(start(tmp_path, body))[0] == 0
    assert finish(start(tmp_path, "print(saved.state)"))[1].endswith("kept\n")


BROKEN_STDERR = """
    import os
    read, write = os.pipe()
    os.dup2(write, 2)
    os.close(read)
    os.close(write)
"""


def test_a_stderr_that_nobody_reads_costs_no_checkpoint(tmp_path: Path, control: ControlSocket) -> None:
    control.refuse = "gone"
    body = BROKEN_STDERR + "    job.save(1, 'x', wait=True); job.save(2, 'kept', wait=True)"
    finish(start(tmp_path, body, control))
    assert [message.get("step") for message in control.operations()] == [1, 2, None]
    assert finish(start(tmp_path, "print(saved.state)"))[1].endswith("kept\n")


def test_a_stderr_that_is_closed_costs_no_checkpoint(tmp_path: Path, control: ControlSocket) -> None:
    control.refuse = "gone"
    body = "sys.stderr.close(); job.save(1, 'x', wait=True); job.save(2, 'kept', wait=True)"
    assert finish(start(tmp_path, body, control))[0] == 0
    assert finish(start(tmp_path, "print(saved.state)"))[1].endswith("kept\n")


def test_an_ack_that_fails_unforeseen_costs_nothing_but_a_line(tmp_path: Path) -> None:
    body = "makeway.job.control.ack = None; job.save(1, 'x', wait=True); job.save(2, 'kept', wait=True)"
    code, _, err = finish(start(tmp_path, body))
    assert (code, err) == (0, "makeway.job: 'NoneType' object is not callable\n" * 2)


def test_a_save_after_the_session_is_not_waited_for(tmp_path: Path) -> None:
    body = "pass\njob.save(1, 'x')\nprint('goes on')\njob.save(2, 'x', wait=True)"
    code, out, err = finish(start(tmp_path, body))
    assert (code, out) == (1, "fresh 0 run 1\ngoes on\n")
    assert err.startswith("makeway.job: step 1 was not saved: the session has ended, or is another process's\n")
    assert err.splitlines()[-1].startswith("makeway.job.session.SaveFailed: the checkpoint was not kept: the session")


FORKED = """
    import os
    worker = os.fork()
    if worker == 0:
        try:
            job.save(1, "x", wait=True)
        except makeway.job.SaveFailed as error:
            job.close()
            os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]), flush=True)
    job.save(2, "kept", wait=True)
"""


def test_a_forked_worker_waits_for_no_writer(tmp_path: Path) -> None:
    code, out, _ = finish(start(tmp_path, FORKED))
    assert (code, out) == (0, "fresh 0 run 1\n7\n")


def test_importing_the_helper_imports_nothing_but_the_standard_library() -> None:
    program = "import sys, makeway.job; print([m for m in sys.modules if m.split('.')[0] in %r])"
    foreign = ("pydantic", "httpx", "typer", "yaml", "numpy", "makeway_schemas", "rich")
    command = [sys.executable, "-c", program % (foreign,)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_shell_says_what_it_saved(makeway: Makeway, control: ControlSocket) -> None:
    arguments = ["ack", "--step", "12", "--bytes", "100", "--fraction", "0.5"]
    result = makeway(*arguments, MAKEWAY_CONTROL=str(control.path))
    assert result.returncode == 0, result.stderr
    assert control.operations() == [{"op": "ack", "step": 12, "bytes": 100, "fraction": 0.5}]


def test_a_shell_is_told_when_its_word_was_not_kept(makeway: Makeway, control: ControlSocket) -> None:
    control.refuse = "not kept: disk full"
    result = makeway("ack", "--step", "1", MAKEWAY_CONTROL=str(control.path))
    assert (result.returncode, "not kept: disk full" in result.stderr) == (1, True)
    assert makeway("ack", "--step", "1").returncode == 1
