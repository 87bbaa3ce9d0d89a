"""Evictions on real processes that say more than a scenario file can: what is left behind, who waits, who was first.

Those numbered O-10 and so on are situations from public bug reports of other schedulers, under the policy of scenarios
(docs/scenarios.md) with their times scaled to a tenth.
"""

import json
import os
import signal
import threading

from laws import processes_of
from live_cluster import LiveCluster, LiveJob, wait_until
from makeway.local.processes import identify, is_alive
from preemption_cells import LANES, Cell, all_of

ONE, TWO = LANES[:2]
LOW = {"class": "low", "priority": 1}
HIGH = {"priority": 100}
"""Of the policy of scenarios, in which a job without a priority has 0."""


def _low(cluster: LiveCluster, name: str, card: str, **spec: object) -> LiveJob:
    job = cluster.submit(name, gpu_type=card, **{**LOW, **spec})  # type: ignore[arg-type]
    job.wait_for("started")
    return job


def _first(cluster: LiveCluster, name: str, card: str, **spec: object) -> LiveJob:
    job = cluster.submit(name, gpu_type=card, priority=1, **spec)  # type: ignore[arg-type]
    job.wait_for("started")
    return job


def _end(job: LiveJob, *, run: int | None = None) -> None:
    job.wait_for("started", run=run)
    job.tell("exit 0", run=run)
    assert job.wait_end().state == "SUCCEEDED"


def test_a_gpu_is_free_only_when_the_process_is_gone(scenario_cluster: LiveCluster, unique: str) -> None:
    """O-10. A job that ignores the notice, and one whose child in a session of its own ignores it too."""
    stubborn = _first(scenario_cluster, f"{unique}-stubborn", ONE, on_notice="ignore", grace=1.0)
    leaver = _first(scenario_cluster, f"{unique}-leaver", TWO, on_notice="exit", grace=1.0)
    leaver.obey("orphan")
    orphan = identify(leaver.journal("orphan")[0]["pid"])
    assert orphan is not None
    heirs = [scenario_cluster.submit(f"{unique}-heir-{card}", gpu_type=card, **HIGH) for card in (ONE, TWO)]

    for victim, heir in zip((stubborn, leaver), heirs, strict=True):
        noticed, started = victim.wait_for("noticed")["at"], heir.wait_for("started")["at"]
        assert 0.9 < started - noticed < 3.0, "killed when the grace was over, not before, and soon after"
    assert not is_alive(orphan)
    for victim, heir in zip((stubborn, leaver), heirs, strict=True):
        _end(heir)
        assert victim.view().runs[0].forced
        _end(victim, run=2)


def test_a_gpu_whose_process_cannot_be_killed_is_not_given_away(scenario_cluster: LiveCluster, unique: str) -> None:
    """O-10, with a process that stays on the card whatever is done to it."""
    victim = _first(scenario_cluster, f"{unique}-victim", ONE, on_notice="leave")
    gpu = victim.journal("started")[0]["gpus"][0]
    hooks = scenario_cluster.folder.node("node-1") / "sim" / "hooks.json"
    hooks.write_text(json.dumps({gpu: {"processes": [{"pid": victim.pid(), "stuck": True}]}}))
    try:
        heir = scenario_cluster.submit(f"{unique}-heir", gpu_type=ONE, **HIGH)
        victim.wait_for("leaves")
        wait_until(lambda: _gpu(scenario_cluster, gpu).state == "QUARANTINED", "the GPU is quarantined")
        wait_until(lambda: heir.view().reason, "the reason is told")
        assert heir.view().state in ("QUEUED", "UNSATISFIABLE", "RESERVED")
        assert heir.runs == []
        why = scenario_cluster.client.why(heir.job_id)
        assert "quarantine" in f"{why.reason_code} {why.reason} {why.detail}".lower(), why
    finally:
        hooks.unlink()
    _end(heir)
    _end(victim, run=2)


def _gpu(cluster: LiveCluster, gpu_id: str):  # type: ignore[no-untyped-def]
    return next(gpu for gpu in cluster.client.gpus() if gpu.gpu_id == gpu_id)


def test_a_clean_exit_after_the_notice_is_no_success(scenario_cluster: LiveCluster, unique: str) -> None:
    """O-12, and the job that declares itself done, whose word counts."""
    pushed = _first(scenario_cluster, f"{unique}-pushed", ONE, on_notice="exit")
    done = _first(scenario_cluster, f"{unique}-done", TWO)
    with _waiting(scenario_cluster, pushed) as codes:
        heirs = [scenario_cluster.submit(f"{unique}-heir-{card}", gpu_type=card, **HIGH) for card in (ONE, TWO)]
        done.wait_for("noticed")
        done.tell("done", "exit 0")
        heirs[0].wait_for("started")
        view = pushed.wait_state("QUEUED")
        assert (view.preemptions, view.runs[0].exit_code, view.runs[0].end_cause) == (1, 0, "preempted")
        assert codes == [], "whoever waits for the job was released"
        for heir in heirs:
            _end(heir)
        assert done.wait_end().state == "SUCCEEDED"
        assert (done.view().preemptions, done.runs) == (0, [1])
        _end(pushed, run=2)
        wait_until(lambda: codes, "whoever waits is released")
    assert codes == [0]


class _waiting:  # noqa: N801 - reads as a phrase
    """`makeway wait` beside the test; the list gets its exit code."""

    def __init__(self, cluster: LiveCluster, job: LiveJob) -> None:
        self._codes: list[int] = []
        self._thread = threading.Thread(target=self._wait, args=(cluster, job.job_id))

    def _wait(self, cluster: LiveCluster, job_id: str) -> None:
        self._codes.append(cluster.run("wait", job_id, check=False).returncode)

    def __enter__(self) -> list[int]:
        self._thread.start()
        return self._codes

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)


def test_an_exit_at_the_moment_of_the_notice_has_one_meaning(cluster: LiveCluster, unique: str) -> None:
    """The job leaves by itself while its eviction is on its way: either word may win, but only one."""
    victims = {card: _low(cluster, f"{unique}-victim-{card}", card) for card in LANES}
    heirs = {}
    for place, (card, victim) in enumerate(victims.items()):
        if place % 2:
            victim.tell("exit 3")
        heirs[card] = cluster.submit(f"{unique}-heir-{card}", gpu_type=card)
        if not place % 2:
            victim.tell("exit 3")
    for heir in heirs.values():
        _end(heir)

    def one_meaning(victim: LiveJob) -> None:
        view = victim.view()
        if view.preemptions:
            _end(victim, run=2)
        else:
            view = victim.wait_end()
            assert (view.state, view.exit_code, victim.runs) == ("FAILED", 3, [1])

    all_of([(card, lambda victim=victim: one_meaning(victim)) for card, victim in victims.items()])  # type: ignore[misc]


def test_a_shim_that_is_killed_takes_its_job_along_and_the_job_is_queued_again(
    cluster: LiveCluster, unique: str
) -> None:
    job = _low(cluster, f"{unique}-job", ONE, grace=1.0)
    shim = next(pid for pid in _ancestors(job.pid()) if _name_of(pid) == "makeway-shim")
    os.kill(shim, signal.SIGKILL)
    job.wait_for("started", run=2)
    assert set(processes_of([job.job_id])) == {job.pid(2)}
    _end(job, run=2)
    assert job.view().preemptions == 0


def _ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - short
            pid = int(stat.read().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def _name_of(pid: int) -> str:
    with open(f"/proc/{pid}/comm") as name:  # noqa: PTH123 - short
        return name.read().strip()


def test_a_cell_goes_through_undisturbed(cluster: LiveCluster, unique: str) -> None:
    """The yardstick of the kill matrix, without a kill; and the record of the preemption has every step."""
    cell = Cell(cluster=cluster, name=unique, card=ONE)
    cell.reach("acked")
    cell.finish()
    record = next(one for one in cluster.client.preemptions() if one.victim_job == cell.victim.job_id)
    steps = (
        record.decided_at, record.noticed_at, record.acked_at, record.exited_at, record.empty_at, record.bound_at,
        record.resumed_at,
    )  # fmt: skip
    assert None not in steps
    assert list(steps) == sorted(steps)  # type: ignore[type-var]
    assert (record.acked_step, record.resumed_step, record.forced) == (41, 41, False)
