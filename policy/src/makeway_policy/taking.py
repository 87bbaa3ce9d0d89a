"""Whom of those within a preemptor's reach it may take: what the bounds on sets of victims know of it, node by node.

A bound holds whoever may not be taken, for fewer choices never cost less. What is said here makes it tighter: whose
cards are out of reach after all, and where a set is known to be what counting cards says (`whole_cards`).
"""

from collections.abc import Sequence

from makeway_policy.candidates import Candidate, candidate_of
from makeway_policy.model import Job, Run
from makeway_policy.question import Question
from makeway_policy.reach import NodeReach, Threshold
from makeway_policy.state import UNITS_PER_GPU
from makeway_policy.victim_room import barred
from makeway_policy.whole_cards import only_cards_decide

_ENDLESS = float("inf")
_BESIDE_GPUS = 8
"""So many GPUs more than a gang asks for may its victims have, to be counted as few."""


class Taking:
    """What one preemptor may take. `only_cards`: nothing else about it decides who has to leave."""

    def __init__(self, question: Question, limit: Threshold | None = None) -> None:
        preemptor, state = question.preemptor, question.state
        self.only_cards = only_cards_decide(question)
        self._question = question
        self._everybody = preemptor.by_reclaim
        self._equal_v = _ENDLESS if limit is None or limit[1] == _ENDLESS else limit[0]
        deadline = preemptor.job.deadline
        self._longest = _ENDLESS if deadline is None else deadline - question.now
        self._teams = {team_id for team_id in state.teams if state.team(team_id).guarantee > 0}
        self._gang = preemptor.job.shape.members > 1
        self._few_gpus = preemptor.job.shape.members * preemptor.job.shape.gpus + _BESIDE_GPUS
        hard = any(group.hard for group in state.groups.values())
        self._anybody = not (self._everybody or deadline is not None or hard or self._teams)
        self._anybody = self._anybody and self._equal_v == _ENDLESS

    @property
    def anybody(self) -> bool:
        """Whether it may take whoever is within its reach, beside any others."""
        return self._anybody

    def on(self, reach: NodeReach) -> tuple[list[int], bool]:
        """(the places of cards whose run it may not take, whether all the others may leave together, whoever else)."""
        state, question = self._question.state, self._question
        overrides = question.preemptor.overrides
        spared: list[int] = []
        known: dict[str, Candidate | None] = {}
        for place, card in enumerate(reach.cards):
            staying = card.card.staying
            if len(staying) != 1 or (card.override if overrides else card.plain)[0] == _ENDLESS:
                continue
            run_id = staying[0]
            if run_id not in known:
                run = state.runs[run_id]
                if not self._is_doubtful(run, state.jobs[run.job_id], card.grace):
                    continue
                known[run_id] = candidate_of(question, run)
            if known[run_id] is None:
                spared.append(place)
        return spared, self._may_leave_together([each for each in known.values() if each is not None])

    def is_safe(self, taken: Sequence[Candidate]) -> bool:
        """Whether who is taken bars nobody that `on` says may leave, nor is barred for one of them.

        That is so where few leave whose team uses more than twice as much beyond its guarantee.
        """
        if self._anybody:
            return True
        gpus = sum(len(each.run.leases) for each in taken)
        return gpus <= self._few_gpus and all(self._is_far_beyond(each.run) for each in taken)

    def _is_doubtful(self, run: Run, job: Job, grace: float) -> bool:
        return (
            self._everybody
            or job.team in self._teams
            or self._question.state.in_hard_group(job)
            or grace > self._longest
            or run.v >= self._equal_v
        )

    def _may_leave_together(self, candidates: Sequence[Candidate]) -> bool:
        if not self._gang:
            return not barred(self._question, candidates)
        jobs = self._question.state.jobs
        if any(self._question.state.in_hard_group(jobs[each.run.job_id]) for each in candidates):
            return False
        return self.is_safe(candidates)

    def _is_far_beyond(self, run: Run) -> bool:
        """Whether a run stays borrowed when two times a few of its team leave, if that matters."""
        state, team_id = self._question.state, self._question.state.jobs[run.job_id].team
        if team_id not in self._teams or team_id == self._question.preemptor.job.team:
            return True
        standing = state.standing(team_id)
        place = standing.place_of(run.run_id)
        units = (state.team(team_id).guarantee + 2 * self._few_gpus) * UNITS_PER_GPU
        return place is not None and standing.up_to(place) > units
