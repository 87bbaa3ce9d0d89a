"""A job that does step by step what its test says: `python -I -S scripted_job.py FOLDER ON_NOTICE`.

It needs the standard library alone and no package of ours, so that a start costs a test little. It writes what happened
as JSON lines into FOLDER/journal and takes instructions, one a line, from the pipe FOLDER/control.RUN:

    ack N        save N in the checkpoint folder, then tell the control socket
    print TEXT   a line on stdout;  write TEXT: without the line break
    fill BYTES   that many bytes of numbered lines on stdout
    orphan       a child in a session of its own that ignores every signal but SIGKILL, and keeps our locks
    exit CODE    leave now;  done: declare the work done, stay

On SIGTERM it goes on waiting (`hold`, `ignore`), saves and leaves (`leave`), leaves with 0 (`exit`), prints BYE and
leaves a little later (`bye`), or saves for some seconds and then leaves (`slow:SECONDS`).
It holds a lock a GPU and one a job for life, as its children do: two holders at once are noted in `violations`.
"""

import fcntl
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
ON_NOTICE = sys.argv[2] if len(sys.argv) > 2 else "hold"
RUN = int(os.environ["MAKEWAY_RUN"])
CHECKPOINT = Path(os.environ["MAKEWAY_CHECKPOINT_DIR"]) / "step"


def note(what: str, **values: Any) -> None:
    """One line of the journal, whole."""
    line = json.dumps({"what": what, "run": RUN, "at": time.clock_gettime(time.CLOCK_BOOTTIME), **values})
    with (FOLDER / "journal").open("a") as journal:
        journal.write(line + "\n")


def lock(path: Path, what: str) -> None:
    """Held until this process and all its children are gone."""
    path.parent.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(descriptor, True)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with (FOLDER.parent / "violations").open("a") as violations:
            violations.write(f"{what} {path.name} was still held when run {RUN} in {FOLDER} started\n")


def tell(operation: str, **values: Any) -> None:
    """One word to the control socket; returns once it is kept."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(os.environ["MAKEWAY_CONTROL"])
        connection.sendall(json.dumps({"op": operation, **values}).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            piece = connection.recv(4096)
            if not piece:
                raise ConnectionError("the control socket was closed")
            answer += piece
    if json.loads(answer).get("ok") is not True:
        raise RuntimeError(answer.decode())


def save(step: int) -> None:
    """A checkpoint, and the word that it is there."""
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    temporary = CHECKPOINT.with_name("step.new")
    temporary.write_text(str(step))
    temporary.replace(CHECKPOINT)
    tell("ack", step=step)
    note("acked", step=step)


def leave(code: int) -> None:
    """The end, as this program wants it."""
    note("leaves", code=code)
    sys.stdout.flush()
    os._exit(code)


def on_notice(_number: int, _frame: object) -> None:
    """The stop notice."""
    note("noticed")
    if ON_NOTICE == "leave":
        save(100 * RUN)
        leave(0)
    elif ON_NOTICE == "exit":
        leave(0)
    elif ON_NOTICE == "bye":
        print("BYE", flush=True)
        time.sleep(0.3)
        leave(0)
    elif ON_NOTICE.startswith("slow:"):
        time.sleep(float(ON_NOTICE.partition(":")[2]))
        (FOLDER / "DONE").touch()
        leave(0)


def orphan() -> None:
    """A child that outlives us unless somebody looks for it."""
    child = os.fork()
    if child == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(3600)
    note("orphan", pid=child)


def fill(total: int) -> None:
    """Numbered lines of 100 bytes."""
    for number in range(total // 100):
        sys.stdout.write(f"{number:099d}\n")
    sys.stdout.flush()


def obey(line: str) -> None:
    """One instruction."""
    verb, _, rest = line.partition(" ")
    if verb == "ack":
        save(int(rest))
    elif verb == "print":
        print(rest, flush=True)
    elif verb == "write":
        print(rest, end="", flush=True)
    elif verb == "fill":
        fill(int(rest))
    elif verb == "orphan":
        orphan()
    elif verb == "exit":
        leave(int(rest))
    elif verb == "done":
        tell("done")
        note("declared done")
    else:
        raise ValueError(f"unknown instruction {line!r}")
    note("obeyed", line=line)


def main() -> None:
    """Start, resume, obey."""
    signal.signal(signal.SIGTERM, on_notice)
    lock(FOLDER / "lock", "job")
    if not os.environ.get("SHARES_GPU"):
        for gpu in filter(None, os.environ["CUDA_VISIBLE_DEVICES"].split(",")):
            lock(FOLDER.parent / "gpus" / gpu, "GPU")
    pipe = FOLDER / f"control.{RUN}"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDWR), "r") as control:  # read and write: it never ends
        note("started", pid=os.getpid(), gpus=os.environ["CUDA_VISIBLE_DEVICES"].split(","))
        if CHECKPOINT.exists():
            step = int(CHECKPOINT.read_text())
            tell("resumed", step=step, load_seconds=0.001)
            note("resumed", step=step)
        for line in control:
            obey(line.rstrip("\n"))


main()
