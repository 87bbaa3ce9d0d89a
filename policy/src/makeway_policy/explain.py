"""Why a job is where it is: computed from the same indices and checks that decide.

`explain` is for a job in the pool; `what_if` for one that is not submitted yet.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from makeway_policy import begin, capacity, judge, placement, priority, protection
from makeway_policy.candidates import protection_from, rule_for
from makeway_policy.index import Index
from makeway_policy.model import Drain, GpuHealth, Job, LeaseKind, NodeHealth, Reason, Refusal, Run
from makeway_policy.moments import moment
from makeway_policy.question import Question, preemptor_of
from makeway_policy.queue import Bucket, Entry
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState, is_leaving

_SHOWN = 10
_WAITS_FOR_GPUS = frozenset({Reason.NO_ROOM, Reason.RESERVED_FOR_ANOTHER, Reason.BACKING_OFF})
_AVOIDED = "avoided after a loss"
_WAITS_FOR_NO_GPUS = frozenset({Reason.NOT_YET, Reason.HELD})


@dataclass(frozen=True, kw_only=True, slots=True)
class PossibleVictim:
    """A run in the way. `rule` is by which it could be taken (None: it ranks too high); `protection` forbids it."""

    run_id: str
    job_id: str
    v: int
    rule: str | None
    protection: protection.Protection | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Everything there is to say about why a job waits.

    `place` is 1 for the first in the queue, None if the job does not wait in it; `ahead` names the first few before it.
    `gpus` counts the pool's GPUs by the first check that they fail ("free" for those that fail none). `would_help` are
    sentences: what would change the answer. `wakes_at` is the next moment at which time alone could.

    `expected_start` is when its GPUs should be free at the latest, by the declared time limits of what runs there and
    without victims (jobs that are ahead may come first); where none can be given `no_start` says why.
    """

    job_id: str
    q: int
    v: int
    place: int | None
    ahead: tuple[str, ...]
    refusal: Refusal | None
    gpus: Mapping[str, int]
    possible_victims: tuple[PossibleVictim, ...]
    would_help: tuple[str, ...]
    wakes_at: float | None
    expected_start: float | None
    no_start: str


def explain(state: PoolState, policy: Policy, job_id: str, now: float) -> Explanation | None:
    """Explain a job of the pool; None for one that the pool does not know. Changes nothing."""
    index = Index.of(state, policy)
    index.sync(now)
    job = state.jobs.get(job_id)
    return None if job is None else _explain(index, job, now)


def what_if(state: PoolState, policy: Policy, job: Job, now: float) -> Explanation:
    """What would be decided for a job that is not in the pool, if it were submitted now. Changes nothing."""
    index = Index.of(state, policy)
    index.sync(now)
    return _explain(index, job, now)


def _explain(index: Index, job: Job, now: float) -> Explanation:
    run = index.state.run_of(job.job_id)
    refusal = _refusal(index, job, now) if run is None else None
    for_ever = refusal is not None and _is_for_ever(refusal)
    waits = refusal is not None and refusal.reason in _WAITS_FOR_GPUS
    missing = capacity.out_of_use(index.state, index.policy, job.shape) if waits else ()
    around = _possible_victims(index, job, now) if run is None and not (for_ever or missing) else ()
    entry = _entry(index, job, now)
    expected_start, no_start = _expected_start(index, job, refusal, now)
    if missing:
        expected_start, no_start = None, f"all that could run it is out of use: {_listed(missing)}"
    return Explanation(
        job_id=job.job_id,
        q=priority.queue_value(job, index.policy, now)[0],
        v=priority.preemption_value(job, index.policy, now),
        place=None if entry is None else 1 + _count_ahead(index, entry),
        ahead=() if entry is None else _first_ahead(index, entry),
        refusal=refusal,
        gpus=_gpus(index, job),
        possible_victims=around[:_SHOWN],
        would_help=_in_use_again(missing) if missing else _would_help(index, job, refusal, around, now),
        wakes_at=None if for_ever else _wakes_at(index, job, around, now),
        expected_start=expected_start,
        no_start=no_start,
    )


def _refusal(index: Index, job: Job, now: float) -> Refusal | None:
    if job.held:
        return Refusal(reason=Reason.HELD, sentence="it is held: a person or a changed fact has to let it go on")
    early = begin.not_yet(job, now)
    if early is not None:
        return early
    verdict = judge.judge(index, job, now)
    return verdict if isinstance(verdict, Refusal) else None


def _is_for_ever(refusal: Refusal) -> bool:
    """Whether neither time nor anybody's end could change the answer."""
    return refusal.reason is Reason.NEVER_FITS or refusal.detail.get("ever") == "no"


def _expected_start(index: Index, job: Job, refusal: Refusal | None, now: float) -> tuple[float | None, str]:
    """When the job should start, or why no time can be given."""
    if refusal is None:
        return None, "it runs, or starts now"
    if refusal.reason is Reason.NOT_YET:
        return _start_once_it_may(index, job, now)
    if refusal.reason not in _WAITS_FOR_GPUS:
        return None, refusal.sentence
    start = index.reservers.of(job).start
    if start is None:
        return None, "runs on the GPUs that would do have no time limit"
    return max(start, now), ""


def _start_once_it_may(index: Index, job: Job, now: float) -> tuple[float | None, str]:
    """The same of a job that may not begin yet: its own time is when it should start only if there is room by then."""
    if job.begin_at is None:
        return None, ""
    verdict = judge.judge(index, job, now)
    if not isinstance(verdict, Refusal):
        return job.begin_at, ""
    start, no_start = _expected_start(index, job, verdict, now)
    if start is None:
        return None, f"not before {moment(job.begin_at)}: {no_start}"
    return max(job.begin_at, start), ""


_Place = tuple[Bucket, Entry, str]


def _entry(index: Index, job: Job, now: float) -> _Place | None:
    """Where the job is in the queue, or would be."""
    found = index.queue.place.get(job.job_id)
    if found is not None:
        return (*found, job.team)
    if job.job_id in index.state.jobs:
        return None
    return (*index.queue.place_for(job, now), job.team)


def _count_ahead(index: Index, place: _Place) -> int:
    mine, entry, _ = place
    return sum(_ahead_in(index, bucket, mine, entry) for bucket in index.queue.buckets.values())


def _ahead_in(index: Index, bucket: Bucket, mine: Bucket, entry: Entry) -> int:
    """How many entries of a bucket come before `entry`; ties of q between teams are ordered by fair share."""
    if index.turns.fair and bucket.team != mine.team:
        theirs = index.turns.of(bucket)[1:4]
        ours = index.turns.of(mine, entry)[1:4]
        if theirs != ours:
            bound = (entry[0] + (1 if theirs < ours else 0), float("-inf"), 0, "")
            return bisect_left(bucket.entries, bound)
    return bisect_left(bucket.entries, entry)


def _first_ahead(index: Index, place: _Place) -> tuple[str, ...]:
    def keyed(bucket: Bucket) -> Iterator[tuple[tuple[float, ...], str]]:
        for entry in bucket.entries[: _ahead_in(index, bucket, place[0], place[1])]:
            yield index.turns.of(bucket, entry), entry[3]

    merged = heapq.merge(*(keyed(bucket) for bucket in index.queue.buckets.values()))
    return tuple(job_id for _, job_id in islice(merged, _SHOWN))


def _gpus(index: Index, job: Job) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for node_id in index.rooms:
        counts.update(_gpus_of_node(index, job, node_id))
    return dict(sorted(counts.items()))


def _gpus_of_node(index: Index, job: Job, node_id: str) -> Counter[str]:
    state = index.state
    node = state.nodes[node_id]
    gpus = [gpu for gpu in state.gpus_of_node(node_id) if not gpu.in_mig_mode]
    if node.health is not NodeHealth.READY:
        return Counter({f"node {node.health}": len(gpus)})
    if node.drain is not Drain.NO:
        return Counter({"node draining": len(gpus)})
    if node.cordoned:
        return Counter({"node cordoned": len(gpus)})
    if node.refusal:
        return Counter({f"node takes no runs: {node.refusal}": len(gpus)})
    if node_id in job.avoid_nodes:
        return Counter({_AVOIDED: len(gpus)})
    if not placement.node_allows(node, job):
        return Counter({"node not asked for": len(gpus)})
    counts: Counter[str] = Counter()
    rooms = {card.gpu.gpu_id: card for card in index.room(node_id).cards}
    for gpu in gpus:
        if not placement.suits(gpu, job.shape, index.policy):
            counts["wrong type, profile or size"] += 1
        elif gpu.health is not GpuHealth.AVAILABLE:
            counts[str(gpu.health)] += 1
        elif gpu.gpu_id in job.avoid_gpus:
            counts[_AVOIDED] += 1
        else:
            counts[_card_word(index, job, index.room(node_id), rooms[gpu.gpu_id].gpu.gpu_id)] += 1
    return counts


def _card_word(index: Index, job: Job, room: NodeRoom, gpu_id: str) -> str:
    card = next(each for each in room.cards if each.gpu.gpu_id == gpu_id)
    if placement.takes(card, job.shape, index.policy, later=False):
        return "free"
    if placement.takes(card, job.shape, index.policy, later=True):
        return "being freed"
    runs = index.state.runs_on_gpu(gpu_id)
    if all(protection.is_hold(run) or is_leaving(run) for run in runs):
        return "held for another job"
    return "in use" if placement.kind_of(job.shape) is LeaseKind.WHOLE else "too full, or in use by another kind"


def _possible_victims(index: Index, job: Job, now: float) -> tuple[PossibleVictim, ...]:
    state, policy = index.state, index.policy
    preemptor = preemptor_of(state, policy, job, now)
    question = Question(state=state, rooms=index.rooms, policy=policy, now=now, preemptor=preemptor)
    found: dict[str, Run] = {}
    for node_id in index.hosts.all_for(job):
        if any(placement.suits(gpu, job.shape, policy) for gpu in state.gpus_of_node(node_id)):
            found.update((run.run_id, run) for run in state.runs_on_node(node_id) if not is_leaving(run))
    listed = [
        PossibleVictim(
            run_id=run.run_id,
            job_id=run.job_id,
            v=run.v,
            rule=rule_for(question, run),
            protection=protection_from(question, run),
        )
        for run in found.values()
    ]
    return tuple(sorted(listed, key=lambda each: (each.rule is None, each.v, each.run_id)))


def _would_help(
    index: Index, job: Job, refusal: Refusal | None, around: tuple[PossibleVictim, ...], now: float
) -> tuple[str, ...]:
    if refusal is None or refusal.reason in _WAITS_FOR_NO_GPUS:
        return ()
    if refusal.reason in (Reason.TEAM_LIMIT, Reason.CLASS_LIMIT, Reason.ALLOWANCE):
        higher = f"a higher {'allowance' if refusal.reason is Reason.ALLOWANCE else 'limit'} for team {job.team}"
        return (higher if _is_for_ever(refusal) else f"{higher}, or the end of one of its runs",)
    if refusal.reason is Reason.NEVER_FITS:
        return (_what_would_fit(index, job, refusal),)
    sentences = []
    first = refusal.detail.get("kept_for") or refusal.detail.get("job")
    if first is not None:
        sentences.append(f"the start or the end of job {first}, which comes first")
    unguarded = [each.v for each in around if each.rule is None and each.protection is None]
    if unguarded and priority.may_take_victims(job, index.policy, now):
        needed = min(unguarded) + index.policy.delta
        if needed <= max(each.own_value_max for each in index.policy.classes.values()):
            sentences.append(f"a priority of at least {needed}")
    ends = [each.protection.until for each in around if each.rule and each.protection and each.protection.until]
    if ends:
        sentences.append(f"time: the first protection of a run that it could take ends at {moment(min(ends))}")
    elif not priority.may_take_victims(replace(job, promoted=False), index.policy, now):
        sentences.append("time: once aged, the job may take victims, where its class ever may")
    avoided = (*sorted(job.avoid_nodes), *sorted(job.avoid_gpus))
    if avoided:
        until = moment(job.avoidance.until)
        sentences.append(
            f"time: it avoids {_listed(avoided)}, where a run of it was lost or did not start, until {until}"
        )
    sentences.append("the end of runs on suitable GPUs, or another node with such GPUs")
    return tuple(sentences)


def _in_use_again(missing: tuple[str, ...]) -> tuple[str, ...]:
    return (f"{_listed(missing)} in use again, or another node that has what the job asks for",)


def _listed(words: tuple[str, ...]) -> str:
    """The first few, and how many more there are."""
    more = len(words) - _SHOWN
    return ", ".join((*words[:_SHOWN], *((f"and {more} more",) if more > 0 else ())))


def _what_would_fit(index: Index, job: Job, refusal: Refusal) -> str:
    """What would help a job that the registered hardware can never run, by the fact that limits it."""
    if "max_shares" in refusal.detail:
        most = index.policy.max_shares
        if (job.shape.shares or 0) <= most:
            return f"the end of the runs on a suitable card, which then takes the policy's max_shares of {most}"
        return f"a policy with max_shares of at least {job.shape.shares}; no node and no end of a run changes it"
    if "members" in refusal.detail:
        return "more nodes that have what each member asks for"
    return "a node that has what the job asks for"


def _wakes_at(index: Index, job: Job, around: tuple[PossibleVictim, ...], now: float) -> float | None:
    if begin.is_early(job, now):
        return job.begin_at
    moments = [priority.next_step_at(job, index.policy, now), job.no_victims_until]
    moments.extend(each.protection.until for each in around if each.rule and each.protection)
    if job.avoid_nodes or job.avoid_gpus:
        moments.append(job.avoidance.until)
    return min((at for at in moments if at is not None and at > now), default=None)
