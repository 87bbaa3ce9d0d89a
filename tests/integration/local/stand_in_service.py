"""A service reduced to what the supervisor sees: it says its health port, answers /healthz, and obeys signals.

`BEHAVIOUR` (JSON, in the environment): `exit_once` is a file; while it is missing the service makes it and exits with
3. An executor in it (`MAKEWAY_NODE_NAME` is set) starts one job that survives it, and writes the grace it was given to
STATE_DIR/drained.
"""

import http.server
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

behaviour = json.loads(os.environ.get("BEHAVIOUR", "{}"))
runtime = Path(os.environ["MAKEWAY_RUNTIME_DIR"])
state = Path(os.environ["MAKEWAY_STATE_DIR"])


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


def drain(number: int, frame: object) -> None:
    (state / "drained").write_text((runtime / "drain.json").read_text())
    sys.exit(0)


marker = behaviour.get("exit_once")
if marker and not Path(marker).exists():
    Path(marker).touch()
    sys.exit(3)
server = http.server.HTTPServer(("127.0.0.1", 0), Health)
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
if "MAKEWAY_NODE_NAME" in os.environ and "EXECUTOR" in os.environ:
    signal.signal(signal.SIGUSR1, drain)
    if behaviour.get("job"):
        job = subprocess.Popen(["sleep", "600"], start_new_session=True)
        (state / "job.pid").write_text(str(job.pid))
(state / f"started-{os.getpid()}").touch()
health_file = Path(os.environ["MAKEWAY_HEALTH_FILE"])
partial = health_file.with_suffix(".new")
partial.write_text(str(server.server_port))
partial.replace(health_file)
server.serve_forever()
