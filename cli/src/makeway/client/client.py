"""``Client``: one method per route of the API."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import httpx
from makeway_schemas import api
from makeway_schemas.ids import is_job_id
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.refusals import field_refusal
from makeway_schemas.states import TERMINAL, JobState
from pydantic import BaseModel, TypeAdapter, ValidationError

from makeway.client.streams import history, job_events, log_pieces
from makeway.client.transport import Patience, Transport
from makeway.client.waiting import wait_for_end
from makeway.errors import BadAnswer, Refused, StillRunning

_M = TypeVar("_M", bound=BaseModel)
_PAGE: Final = 200
_OUTCOME_SECONDS: Final = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class JobQuery:
    """Filters of ``Client.jobs``; those left out do not filter. ``include_finished``: ended jobs of any age too."""

    states: tuple[JobState, ...] = ()
    team: str | None = None
    class_name: str | None = None
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    node: str | None = None
    include_finished: bool = False

    def params(self) -> list[tuple[str, str]]:
        """The query string, one pair per condition."""
        single = {"team": self.team, "class": self.class_name, "name": self.name, "node": self.node}
        pairs = [(key, value) for key, value in single.items() if value is not None]
        pairs += [("state", state.value) for state in self.states]
        pairs += [("label", f"{name}={value}") for name, value in self.labels.items()]
        return [*pairs, ("all", "true")] if self.include_finished else pairs


class _Resolved(api.ApiModel):
    job_id: str


class Client:
    """A synchronous client; use it as a context manager.

    Every method raises ``Refused`` when the server says no and ``NoContact`` when an outage outlasts the patience.
    """

    def __init__(self, url: str, token: str = "", *, patience: Patience | None = None) -> None:
        self.transport = Transport(url, token, patience or Patience())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        self.transport.close()

    def submit(
        self, spec: JobSpec | Mapping[str, Any], *, idempotency_key: str | None = None, traceparent: str | None = None
    ) -> api.Submitted:
        """Submits a job. With the same key and content again it answers the job that exists already.

        Without a key one is made for this call, so that a repeat after a lost answer never makes a second job.
        ``traceparent`` (W3C trace context) links the job's trace to the caller's. A wrong field is ``Refused`` before
        anything is sent, by name and as the server would say it.
        """
        body = _body(JobSpec, spec)
        headers = {"idempotency-key": idempotency_key or uuid.uuid4().hex}
        if traceparent:
            headers["traceparent"] = traceparent
        response = self.transport.request("POST", "/v1/jobs", json=body, headers=headers)
        return _read(api.Submitted, response)

    def resolve(self, reference: str) -> str:
        """The job id that a name, an id, its prefix or ``@last`` (the newest of this token) stands for."""
        if is_job_id(reference):
            return reference
        response = self.transport.request("GET", "/v1/resolve", params={"ref": reference})
        return _read(_Resolved, response).job_id

    def job(self, job_id: str) -> api.JobDetail:
        """One job with its specification and runs."""
        return self._get(api.JobDetail, _job(job_id))

    def jobs(self, query: JobQuery | None = None, *, limit: int | None = None) -> Iterator[api.JobView]:
        """Jobs, newest first, page by page as they are consumed; at most ``limit``."""
        params = (query or JobQuery()).params()
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            paging = [("limit", str(min(left or _PAGE, _PAGE)))] + ([("cursor", cursor)] if cursor else [])
            response = self.transport.request("GET", "/v1/jobs", params=[*params, *paging])
            page = _read(api.JobPage, response)
            yield from page.jobs if left is None else page.jobs[:left]
            left = None if left is None else left - len(page.jobs)
            cursor = page.next
            if cursor is None:
                return

    def why(self, job_id: str) -> api.WhyView:
        """Why the job is where it is."""
        return self._get(api.WhyView, f"{_job(job_id)}/why")

    def cancel(self, job_id: str) -> api.CommandAccepted:
        """Asks for the job's end; it is STOPPING until its process is proven gone."""
        response = self.transport.request("POST", f"{_job(job_id)}/cancel")
        return _read(api.CommandAccepted, response)

    def set_priority(self, job_id: str, priority: int | None) -> api.CommandAccepted:
        """Sets a manual value; None takes it back."""
        response = self.transport.request("PUT", f"{_job(job_id)}/priority", json={"priority": priority})
        return _read(api.CommandAccepted, response)

    def change_limits(self, job_id: str, limits: Mapping[str, Any]) -> api.CommandAccepted:
        """Asks for another ``time_limit`` or ``deadline``; None takes one away."""
        body = _body(api.LimitsChange, limits)
        return _read(api.CommandAccepted, self.transport.request("PATCH", _job(job_id), json=body))

    def preempt(self, job_id: str, *, run: int | None = None, force: bool = False) -> api.CommandAccepted:
        """Asks for the stop of one run of the job; the job is put back. ``outcome_of`` says whether it was done.

        Without ``run`` the run is meant that the job has now. It is asked for first: a request that has to be repeated
        after a lost answer then still means the same run.
        """
        meant = self.job(job_id).run_number if run is None else run
        response = self.transport.request("POST", f"{_job(job_id)}/preempt", json={"force": force, "run": meant})
        return _read(api.CommandAccepted, response)

    def resume(self, job_id: str) -> api.CommandAccepted:
        """Asks for a held job to go on."""
        return _read(api.CommandAccepted, self.transport.request("POST", f"{_job(job_id)}/resume"))

    def outcome_of(self, command_id: int, *, timeout_seconds: float = 30.0) -> str | None:
        """What became of a request, once the scheduler has taken it; None where it has not within the time."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            outcome = self._get(api.CommandView, f"/v1/commands/{command_id}").outcome
            if outcome is not None or time.monotonic() >= deadline:
                return outcome
            time.sleep(_OUTCOME_SECONDS)

    def events(self, job_id: str, *, after: int = 0) -> Iterator[api.EventView]:
        """The job's events after a sequence number, as they happen, over outages; ends after a terminal state."""
        for event in job_events(self.transport, f"{_job(job_id)}/events", after=after):
            if event is not None:
                yield event
                if event.state in TERMINAL:
                    return

    def history(self, *, after: int = 0) -> Iterator[api.EventView]:
        """The events of all jobs that the token sees, after a sequence number, up to now."""
        return history(self.transport, "/v1/events", after=after)

    def wait(
        self,
        job_id: str,
        *,
        timeout_seconds: float | None = None,
        on_event: Callable[[api.EventView], None] | None = None,
    ) -> api.JobDetail:
        """The job once it has ended. Raises StillRunning after the time-out, NoScheduler where nobody schedules."""
        return wait_for_end(self, job_id, timeout_seconds=timeout_seconds, on_event=on_event)

    def logs(
        self,
        job_id: str,
        *,
        run: str = "all",
        follow: bool = False,
        tail: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Iterator[bytes]:
        """Pieces of the log of one run (its number) or of ``all``, over outages; to the job's end with ``follow``.

        Raises StillRunning after the time-out.
        """
        began = time.monotonic()
        params = {"run": run, "follow": "true" if follow else "false"} | ({} if tail is None else {"tail": str(tail)})

        def complete() -> bool:
            # A server that is shutting down ends its streams too: only the state says that this was the end.
            return not follow or run != "all" or self.job(job_id).state in TERMINAL

        deadline = None if timeout_seconds is None else began + timeout_seconds
        path = f"{_job(job_id)}/logs"
        try:
            yield from log_pieces(self.transport, path, params, complete=complete, deadline=deadline)
        except TimeoutError as error:
            raise StillRunning(job_id, time.monotonic() - began) from error

    def nodes(self) -> list[api.NodeView]:
        """All nodes."""
        return self._list(api.NodeView, "/v1/nodes")

    def cordon(self, node_id: str, *, reason: str = "") -> api.NodeCommandAccepted:
        """Asks that nothing new be placed on a node."""
        return self._close_node(node_id, "cordon", {"reason": reason})

    def drain(self, node_id: str, *, reason: str = "", force: bool = False) -> api.NodeCommandAccepted:
        """The same, and that its runs leave; with ``force`` those too that something protects."""
        return self._close_node(node_id, "drain", {"reason": reason, "force": force})

    def uncordon(self, node_id: str) -> api.NodeCommandAccepted:
        """Asks that a node take runs again."""
        return self._close_node(node_id, "uncordon", {})

    def declare_dead(self, node_id: str, *, reason: str = "") -> api.NodeCommandAccepted:
        """Asks that a silent node be given up: what ran there is lost, its jobs go back to the queue."""
        return self._close_node(node_id, "dead", {"reason": reason})

    def _close_node(self, node_id: str, command: str, body: Mapping[str, Any]) -> api.NodeCommandAccepted:
        path = f"/v1/nodes/{quote(node_id, safe='')}/{command}"
        return _read(api.NodeCommandAccepted, self.transport.request("POST", path, json=dict(body)))

    def gpus(self) -> list[api.GpuView]:
        """All GPUs with their leases and readings."""
        return self._list(api.GpuView, "/v1/gpus")

    def cluster(self) -> api.ClusterView:
        """Figures of the whole cluster."""
        return self._get(api.ClusterView, "/v1/cluster")

    def preemptions(self, **filters: str) -> list[api.PreemptionView]:
        """Records of preemptions, newest first."""
        return self._list(api.PreemptionView, "/v1/preemptions", filters)

    def teams(self) -> list[api.TeamView]:
        """All teams with limits and use."""
        return self._list(api.TeamView, "/v1/teams")

    def set_team(self, team: str, body: api.TeamBody) -> api.TeamView:
        """Creates or replaces a team's limits."""
        path = f"/v1/teams/{quote(team, safe='')}"
        response = self.transport.request("PUT", path, json=body.model_dump(mode="json"))
        return _read(api.TeamView, response)

    def policy(self, pool: str) -> api.PolicyView:
        """The policy in force: what was applied, and every value that holds."""
        return self._get(api.PolicyView, f"/v1/policies/{quote(pool, safe='')}")

    def apply_policy(self, pool: str, document: Mapping[str, Any], *, dry_run: bool = False) -> api.PolicyApplied:
        """Applies a policy, or with ``dry_run`` says what it would change."""
        path = f"/v1/policies/{quote(pool, safe='')}"
        params = {"dry_run": "true" if dry_run else "false"}
        response = self.transport.request("PUT", path, json=dict(document), params=params)
        return _read(api.PolicyApplied, response)

    def tokens(self) -> list[api.TokenView]:
        """All tokens, without their secrets."""
        return self._list(api.TokenView, "/v1/tokens")

    def create_token(self, request: api.TokenRequest) -> api.TokenCreated:
        """A new token; its secret is shown this once."""
        response = self.transport.request("POST", "/v1/tokens", json=request.model_dump(mode="json"))
        return _read(api.TokenCreated, response)

    def revoke_token(self, token_id: str) -> None:
        """From now on the token opens nothing."""
        self.transport.request("DELETE", f"/v1/tokens/{quote(token_id, safe='')}")

    def health(self) -> api.Health:
        """The API service's own health."""
        return self._get(api.Health, "/healthz")

    def _get(self, model: type[_M], path: str) -> _M:
        return _read(model, self.transport.request("GET", path))

    def _list(self, model: type[_M], path: str, params: Mapping[str, str] | None = None) -> list[_M]:
        response = self.transport.request("GET", path, params=dict(params or {}))
        try:
            return TypeAdapter(list[model]).validate_json(response.content)  # type: ignore[valid-type]
        except ValidationError as error:
            raise BadAnswer(path, str(error)) from error


def _body(model: type[BaseModel], given: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    """What is sent. Raises Refused, as the server would, where it is no such model."""
    try:
        valid = given if isinstance(given, model) else model.model_validate(given)
    except ValidationError as error:
        raise Refused(field_refusal(model, error.errors(include_url=False, include_input=False))) from error
    return valid.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _read(model: type[_M], response: httpx.Response) -> _M:
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        raise BadAnswer(response.url.path, str(error)) from error


def _job(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"
