"""A real HTTP server on loopback that answers what a test tells it to, and the command as a process."""

import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from makeway.main import app

JOB_ID = "0123456789ab"
NOW = "2026-01-02T03:04:05Z"


def job_view(**changes: Any) -> dict[str, Any]:
    """A job as the API sends it."""
    view = {
        "job_id": JOB_ID,
        "name": "train",
        "pool": "default",
        "team": "vision",
        "class": "normal",
        "priority": 500,
        "state": "RUNNING",
        "gpus": 1,
        "node": "node-1",
        "submitted_by": "someone",
        "submitted_at": NOW,
    }
    return view | changes


def job_detail(**changes: Any) -> dict[str, Any]:
    """A job with its specification and runs."""
    return job_view(**({"spec": {"command": ["/bin/true"]}, "runs": []} | changes))


def run_view(**changes: Any) -> dict[str, Any]:
    """A run as the API sends it."""
    run = {"run_id": f"{JOB_ID}.1", "number": 1, "state": "RELEASED", "node": "node-1", "planned_at": NOW}
    return run | changes


@dataclass
class Request:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What to send: ``pieces`` are sent chunked and one by one; ``cut`` breaks the connection before the end."""

    status: int = 200
    body: Any = None
    pieces: list[bytes] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


Route = Callable[[Request], Answer]


class _Quiet(ThreadingHTTPServer):
    """A client that has what it wants hangs up, at whatever moment: that is no error to print."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class StubServer:
    """Routes by (method, path); what has no route is a 404 problem. ``requests`` keeps what came in."""

    def __init__(self) -> None:
        self.routes: dict[tuple[str, str], Route] = {}
        self.requests: list[Request] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                size = int(self.headers.get("content-length", 0))
                url = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, url.path, parse_qs(url.query), headers, self.rfile.read(size))
                stub.requests.append(request)
                self.send(stub.routes.get((request.method, request.path), not_found)(request))

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

            def send(self, answer: Answer) -> None:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.pieces or answer.cut:
                    self.send_header("transfer-encoding", "chunked")
                    self.end_headers()
                    for piece in answer.pieces:
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                        self.wfile.flush()
                    if answer.cut:
                        self.close_connection = True
                    else:
                        self.wfile.write(b"0\r\n\r\n")
                    return
                body = b"" if answer.body is None else json.dumps(answer.body).encode()
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def on(self, method: str, path: str, *answers: Answer | dict[str, Any] | list[Any]) -> None:
        """Answers in turn; the last one again and again."""
        left = [answer if isinstance(answer, Answer) else Answer(body=answer) for answer in answers]
        self.routes[(method, path)] = lambda _: left.pop(0) if len(left) > 1 else left[0]

    def log(self, job_id: str, *pieces: bytes) -> None:
        """The log of a job's one run, which goes on after the cursor of whoever comes back."""

        def answer(request: Request) -> Answer:
            seen = int(request.headers.get("last-event-id", "1:0").partition(":")[2])
            left = b"".join(pieces)[seen:]
            return Answer(pieces=log_events(*([left] if left else []), offset=seen))

        self.routes[("GET", f"/v1/jobs/{job_id}/logs")] = answer

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def not_found(request: Request) -> Answer:
    problem = {"title": "Not found", "status": 404, "detail": f"nothing at {request.path}", "code": "not_found"}
    return Answer(status=404, body=problem)


def sse(*events: dict[str, Any]) -> list[bytes]:
    """Server-sent events, one piece each."""
    base = {"job_id": JOB_ID, "at": NOW, "kind": "state"}
    return [f"id: {e['sequence']}\nevent: state\ndata: {json.dumps(base | e)}\n\n".encode() for e in events]


def log_events(*pieces: bytes, offset: int = 0, end: bool = True) -> list[bytes]:
    """A log of run 1 as server-sent events."""
    sent = []
    for piece in pieces:
        data = json.dumps({"run": 1, "offset": offset, "data": base64.b64encode(piece).decode()})
        offset += len(piece)
        sent.append(f"id: 1:{offset}\nevent: log\ndata: {data}\n\n".encode())
    return [*sent, b"event: end\ndata: {}\n\n"] if end else sent


@dataclass
class Result:
    """What the command printed and its exit code."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Makeway:
    """The command with an environment and a folder of its own, inside this process: a process each costs 0.3 s."""

    environment: dict[str, str]
    folder: Path

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> Result:
        out, err, given = (io.TextIOWrapper(io.BytesIO(text), "utf-8") for text in (b"", b"", stdin.encode()))
        with (
            mock.patch.dict(os.environ, self.environment | environment, clear=True),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(sys, "stdin", given),
        ):
            try:
                app(arguments, prog_name="makeway")
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
        out.flush(), err.flush()
        return Result(code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())  # type: ignore[attr-defined]

    def process(self, *arguments: str) -> subprocess.Popen[bytes]:
        """The same as a real process, for what concerns its descriptors."""
        command = [sys.executable, "-m", "makeway.main", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=pipe, stderr=pipe)
