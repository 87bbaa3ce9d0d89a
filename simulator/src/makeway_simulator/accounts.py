"""What the engine writes down as it goes: runs that ended, jobs that ended, evictions, the queue over time."""

from makeway_policy.choices import Preempt, Victim
from makeway_policy.model import Refusal

from makeway_simulator.book import Book, Live
from makeway_simulator.outcome import EndKind, JobOutcome
from makeway_simulator.record import HoldLost, Moment, Preemption, Record, Segment
from makeway_simulator.trace import Cluster, TraceJob


class Accounts:
    """Fills one `Record`."""

    def __init__(self, cluster: Cluster) -> None:
        self.record = Record(cluster=cluster)

    def run_ended(self, book: Book, live: Live, now: float) -> None:
        """A run is gone."""
        book.held += (now - live.started_at) * book.gpus
        self.record.segments.append(segment(book, live, now))

    def job_ended(self, book: Book, kind: EndKind, class_name: str, now: float) -> None:
        """A job has come to its end."""
        job = book.job
        self.record.ended[kind] += 1
        useful = job.work_seconds * book.gpus if kind is EndKind.FINISHED else 0.0
        self.record.outcomes.append(
            JobOutcome(
                job_id=job.job_id,
                class_name=class_name,
                gpus=book.gpus,
                submitted_at=job.submitted_at,
                started_at=now if book.first_started_at is None else book.first_started_at,
                finished_at=now,
                preemptions=book.preemptions,
                held_gpu_seconds=book.held,
                lost_gpu_seconds=max(0.0, book.held - useful),
                kind=kind,
            )
        )

    def evicted(self, book: Book, victim: Victim, choice: Preempt, now: float) -> None:
        """A run is told to make way."""
        book.preemptions += 1
        self.record.preemptions.append(
            Preemption(
                at=now,
                victim=victim.job_id,
                preemptor=choice.job_id,
                mode=victim.mode,
                trigger=choice.trigger,
                cost_gpu_seconds=victim.cost_gpu_seconds,
            )
        )

    def hold_lost(self, run_id: str, now: float) -> None:
        """A run that was kept GPUs for has lost them; one that never had any lease is not in the state any more."""
        self.record.holds_lost.append(HoldLost(at=now, job_id=run_id.rpartition(".")[0]))

    def turned_away(self, job: TraceJob, refusal: Refusal) -> None:
        """A submit was refused."""
        self.record.turned_away[job.job_id] = refusal

    def sample(self, now: float, waiting: int, busy_gpus: int) -> None:
        """The queue and the GPUs as they are now, where that differs from before."""
        moments = self.record.moments
        if moments and (moments[-1].waiting, moments[-1].busy_gpus) == (waiting, busy_gpus):
            return
        moments.append(Moment(at=now, waiting=waiting, busy_gpus=busy_gpus))


def segment(book: Book, live: Live, now: float) -> Segment:
    """A run up to now."""
    return Segment(
        job_id=book.job.job_id,
        run=live.number,
        gpus=live.gpus,
        started_at=live.started_at,
        ready_at=min(live.course.ready_at, now),
        ended_at=now,
        kind=live.kind,
        resumed_seconds=live.course.saved_seconds,
        saved_seconds=live.leaving.saved_seconds if live.leaving else live.course.done_by(now),
        noticed_at=live.noticed_at,
        forced=live.leaving is not None and live.leaving.forced,
    )
