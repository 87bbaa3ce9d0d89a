"""What a shim tells of its run, and what is told to the scheduler of it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog
from makeway_schemas.facts import Fact, Resume, RunEnd
from makeway_schemas.states import StopCause

from makeway_executor import clock, ends, orphans
from makeway_executor.facts import Teller
from makeway_executor.reconcile import Phase
from makeway_executor.run import Run
from makeway_executor.shim import ShimLink

_LOG: Final = structlog.get_logger(__name__)


class Telling(Protocol):
    """Where facts go."""

    def put(self, fact: Fact, *, at_ns: int) -> None:
        """Takes a fact that happened at `at_ns` since boot."""


class Cards(Protocol):
    """Simulated cards are told who is on them; real ones see for themselves."""

    def occupy(self, run: Run, pid: int) -> None:
        """The run's main process is on its cards."""

    def leave(self, run: Run) -> None:
        """The run is off its cards."""


class EndHandler(Protocol):
    """What is done with a run's end."""

    def __call__(self, run: Run, end: RunEnd, *, ended_ns: int | None = None) -> None:
        """`ended_ns`: when its tree was gone, where that is known."""


class RunEvents:
    """Turns the events of shims into changes of runs and into facts."""

    def __init__(self, teller: Teller, telling: Telling, cards: Cards) -> None:
        """`on_end` and `on_shim_gone` are set by the node before anything is attached."""
        self.teller = teller
        self.runs: dict[str, Run] = {}
        self._telling = telling
        self._cards = cards
        self.on_end: EndHandler = lambda run, end, *, ended_ns=None: None
        self.on_shim_gone: Callable[[Run], None] = lambda run: None
        self._handlers: dict[str, Callable[[Run, dict[str, Any]], None]] = {
            "started": self._on_started,
            "notice_delivered": self._on_notice,
            "ack": self._on_ack,
            "resumed": self._on_resumed,
            "end": self._on_end,
        }

    @property
    def session(self) -> str:
        """The executor's session."""
        return self.teller.session

    def attach(self, run: Run, connection: socket.socket) -> None:
        """Follows a run's shim from now on."""
        run.link = ShimLink(
            connection,
            on_event=lambda name, data: self._on_event(run, name, data),
            on_hang_up=lambda: self._on_hang_up(run),
        )

    def tell_exited(self, run: Run) -> None:
        """Tells a run's end, once, with the GPUs that are empty by now."""
        if run.exit_told or run.end is None:
            return
        run.exit_told = True
        planned = () if run.planned is None else tuple(gpu.gpu_id for gpu in run.planned.gpus)
        empty = tuple(gpu_id for gpu_id in planned if gpu_id not in run.held_gpus)
        self._telling.put(self.teller.exited(run, run.end, empty), at_ns=run.ended_ns or clock.now_ns())

    def tell_empty(self, run: Run, gpu_id: str) -> None:
        """Tells that a GPU is empty, unless the run's end is still to be told and will say so."""
        if run.exit_told:
            self._telling.put(self.teller.empty(run, gpu_id), at_ns=clock.now_ns())

    def _on_event(self, run: Run, name: str, data: dict[str, Any]) -> None:
        handler = self._handlers.get(name)
        if handler is not None:
            handler(run, data)

    def _on_started(self, run: Run, data: dict[str, Any]) -> None:
        run.pid = data["pid"]
        if run.shim_pid is None:
            run.shim_pid = orphans.parent_of(data["pid"], data["start_ticks"])
        run.started_ns = data["boottime_ns"]
        if run.phase is Phase.STARTING:
            run.phase = Phase.RUNNING
        self._cards.occupy(run, data["pid"])
        self._telling.put(self.teller.started(run, data["pid"]), at_ns=data["boottime_ns"])

    def _on_notice(self, run: Run, data: dict[str, Any]) -> None:
        run.noticed_ns = data["boottime_ns"]
        run.phase = Phase.NOTICED
        fact = self.teller.noticed(run, StopCause(data["cause"]), data["grace_seconds"])
        self._telling.put(fact, at_ns=data["boottime_ns"])

    def _on_ack(self, run: Run, data: dict[str, Any]) -> None:
        run.ack = ends.ack_of(data)
        run.ack_ns = data["boottime_ns"]
        self._telling.put(self.teller.acked(run, run.ack, run.ack_ns), at_ns=run.ack_ns)

    def _on_resumed(self, run: Run, data: dict[str, Any]) -> None:
        run.resumed = Resume(step=data["step"], load_seconds=data["load_seconds"])
        run.resumed_ns = data["boottime_ns"]
        self._telling.put(self.teller.resumed(run, run.resumed), at_ns=run.resumed_ns)

    def _on_end(self, run: Run, data: dict[str, Any]) -> None:
        if run.end is None:
            self._cards.leave(run)
            self.on_end(run, ends.end_of(data, run.planned), ended_ns=ends.ended_at_ns(data))

    def _on_hang_up(self, run: Run) -> None:
        run.link = None
        if run.end is None:
            self.on_shim_gone(run)

    def ended_without_shim(self, run: Run) -> None:
        """The run is off its cards, found by the agent itself."""
        self._cards.leave(run)
