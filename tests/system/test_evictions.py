"""Situations from public bug reports of other schedulers in which evictions went wrong, numbered O-06 and so on.

They ran with plain priorities in their first home. Here the default policy gives the same situation: the less urgent
jobs are of class low, which has no minimum run, the more urgent ones of class normal or high. Times are scaled to a
tenth.
"""

import json
import os
import signal
import threading

import pytest
from laws import processes_of
from live_cluster import LiveCluster, LiveJob, wait_until
from makeway.local.processes import identify, is_alive
from preemption_cells import LANES, POOL, Cell, all_of

ONE, TWO, THREE, FOUR, FIVE, SIX = LANES[:6]
LOW = {"class": "low", "priority": 1}


def _low(cluster: LiveCluster, name: str, card: str, **spec: object) -> LiveJob:
    job = cluster.submit(name, gpu_type=card, **{**LOW, **spec})  # type: ignore[arg-type]
    job.wait_for("started")
    return job


def _let_end(job: LiveJob) -> None:
    """Tell the run that goes on to end: others may be noticed before they listen, or never start at all."""
    told: set[int] = set()

    def is_over() -> bool:
        view = job.view()
        if view.state == "RUNNING" and view.run_number in job.runs and view.run_number not in told:
            told.add(view.run_number)
            job.tell("exit 0", run=view.run_number)
        return view.ended_at is not None

    wait_until(is_over, f"{job.folder.name} ends", within=30)
    assert job.view().state == "SUCCEEDED"


def _end(job: LiveJob, *, run: int | None = None) -> None:
    job.wait_for("started", run=run)
    job.tell("exit 0", run=run)
    assert job.wait_end().state == "SUCCEEDED"


def test_freed_gpus_are_kept_for_the_job_they_were_freed_for(cluster: LiveCluster, unique: str) -> None:
    """O-06. The jobs that could steal are as urgent as `normal` allows below the preemptor."""
    graces = (0.5, 2.0, 4.0, 6.0)
    lows = [
        _low(cluster, f"{unique}-low-{place}", POOL, grace=grace, on_notice="ignore")
        for place, grace in enumerate(graces)
    ]
    hi = cluster.submit(f"{unique}-hi", gpu_type=POOL, gpus=4, priority=600)
    lows[3].wait_for("noticed")
    mids = [cluster.submit(f"{unique}-mid-{number}", gpu_type=POOL, priority=400) for number in range(4)]

    started = hi.wait_for("started")
    noticed = lows[3].wait_for("noticed")
    assert not any(mid.runs for mid in mids), "a mid job took a GPU that was freed for the urgent one"
    assert started["at"] - noticed["at"] == pytest.approx(6.0, abs=1.5)
    hi.tell("exit 0")
    for mid in mids:
        mid.wait_for("started")
        mid.tell("exit 0")
    assert hi.wait_end().preemptions == 0
    for low in lows:
        _end(low, run=2)
        assert low.view().preemptions == 1
    assert {mid.wait_end().preemptions for mid in mids} == {0}


def test_a_more_urgent_job_may_go_first_and_the_holder_still_gets_in(cluster: LiveCluster, unique: str) -> None:
    """O-06, repeated with a job that is more urgent than the one that holds. The others may run until it has ended."""
    lows = [_low(cluster, f"{unique}-low-{place}", POOL, grace=10.0) for place in range(4)]
    hi = cluster.submit(f"{unique}-hi", gpu_type=POOL, gpus=4)
    for low in lows:
        low.wait_for("noticed")
        low.may_die_early = True  # it may run again for a moment, until the holder is decided again
    above = cluster.submit(f"{unique}-above", gpu_type=POOL, **{"class": "high"})
    hi.wait_state("QUEUED")
    for low in lows:
        low.tell("exit 0")
    above.wait_for("started")
    assert hi.runs == []
    above.tell("exit 0")

    told: set[tuple[str, int]] = set()

    def starts() -> bool:
        for low in lows:
            for run in {each["run"] for each in low.journal("noticed") if each["run"] > 1}:
                if (low.folder.name, run) not in told:
                    told.add((low.folder.name, run))
                    low.tell("exit 0", run=run)
        return bool(hi.runs)

    wait_until(starts, "the holder gets in", within=15)
    _end(hi)
    for low in lows:
        _let_end(low)
        assert low.view().preemptions >= len(low.journal("noticed")) >= 1
    assert above.wait_end().preemptions == 0


def test_a_gpu_is_free_only_when_the_process_is_gone(cluster: LiveCluster, unique: str) -> None:
    """O-10. A job that ignores the notice, and one whose child in a session of its own ignores it too."""
    stubborn = _low(cluster, f"{unique}-stubborn", ONE, on_notice="ignore", grace=1.0)
    leaver = _low(cluster, f"{unique}-leaver", TWO, on_notice="exit", grace=1.0)
    leaver.obey("orphan")
    orphan = identify(leaver.journal("orphan")[0]["pid"])
    assert orphan is not None
    heirs = [cluster.submit(f"{unique}-heir-{card}", gpu_type=card) for card in (ONE, TWO)]

    for victim, heir in zip((stubborn, leaver), heirs, strict=True):
        noticed, started = victim.wait_for("noticed")["at"], heir.wait_for("started")["at"]
        assert 0.9 < started - noticed < 3.0, "killed when the grace was over, not before, and soon after"
    assert not is_alive(orphan)
    for victim, heir in zip((stubborn, leaver), heirs, strict=True):
        _end(heir)
        assert victim.view().runs[0].forced
        _end(victim, run=2)


def test_a_gpu_whose_process_cannot_be_killed_is_not_given_away(cluster: LiveCluster, unique: str) -> None:
    """O-10, with a process that stays on the card whatever is done to it."""
    victim = _low(cluster, f"{unique}-victim", ONE, on_notice="leave")
    gpu = victim.journal("started")[0]["gpus"][0]
    hooks = cluster.folder.node("node-1") / "sim" / "hooks.json"
    hooks.write_text(json.dumps({gpu: {"processes": [{"pid": victim.pid(), "stuck": True}]}}))
    try:
        heir = cluster.submit(f"{unique}-heir", gpu_type=ONE)
        victim.wait_for("leaves")
        wait_until(lambda: _gpu(cluster, gpu).state == "QUARANTINED", "the GPU is quarantined")
        wait_until(lambda: heir.view().reason, "the reason is told")
        assert heir.view().state in ("QUEUED", "UNSATISFIABLE", "RESERVED")
        assert heir.runs == []
        why = cluster.client.why(heir.job_id)
        assert "quarantine" in f"{why.reason_code} {why.reason} {why.detail}".lower(), why
    finally:
        hooks.unlink()
    _end(heir)
    _end(victim, run=2)


def _gpu(cluster: LiveCluster, gpu_id: str):  # type: ignore[no-untyped-def]
    return next(gpu for gpu in cluster.client.gpus() if gpu.gpu_id == gpu_id)


def test_the_grace_that_was_asked_for_is_given(cluster: LiveCluster, unique: str) -> None:
    """O-11: in time, too late, and no grace at all."""
    saves = _low(cluster, f"{unique}-saves", ONE, grace=3.0, on_notice="slow:2")
    late = _low(cluster, f"{unique}-late", TWO, grace=3.0, on_notice="slow:4")
    none = _low(cluster, f"{unique}-none", THREE, grace=0.0, on_notice="slow:4")
    heirs = [cluster.submit(f"{unique}-heir-{card}", gpu_type=card) for card in (ONE, TWO, THREE)]
    starts = [heir.wait_for("started")["at"] for heir in heirs]
    assert starts[0] - saves.wait_for("noticed")["at"] == pytest.approx(2.0, abs=0.7)
    assert starts[1] - late.wait_for("noticed")["at"] == pytest.approx(3.0, abs=0.7)
    assert (saves.folder / "DONE").exists()
    assert not (late.folder / "DONE").exists()
    assert not (none.folder / "DONE").exists()
    for victim, heir in zip((saves, late, none), heirs, strict=True):
        assert victim.view().state == "QUEUED"
        _end(heir)
        _end(victim, run=2)
    assert [victim.view().runs[0].forced for victim in (saves, late, none)] == [False, True, True]


def test_a_clean_exit_after_the_notice_is_no_success(cluster: LiveCluster, unique: str) -> None:
    """O-12, and the job that declares itself done, whose word counts."""
    pushed = _low(cluster, f"{unique}-pushed", ONE, on_notice="exit")
    done = _low(cluster, f"{unique}-done", TWO)
    with _waiting(cluster, pushed) as codes:
        heirs = [cluster.submit(f"{unique}-heir-{card}", gpu_type=card) for card in (ONE, TWO)]
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
