"""What was stored with a decision, said as of now.

A decision is stored when its reason changes, so what explains it may be hours old: moments in it have passed, runs
have left. Nothing of that is said as if it still held. What cannot be told from here (how many GPUs were in use) is as
it was at `decided_at`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from makeway_schemas.durations import format_duration, parse_duration

_MOMENT: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
_DUE_SECONDS: Final = 5.0
"""So long a look that was announced may still be on its way; after that it has been taken, and changed nothing."""


def as_of(
    detail: Mapping[str, Any],
    staying: Mapping[str, bool],
    *,
    decided_at: datetime,
    now: datetime,
    recheck_seconds: float,
) -> dict[str, Any]:
    """The stored detail of a decision to wait. `staying`: runs that have not ended, and whether they are told to leave.

    `next_look` says in words when the job is looked at again; `next_look_at` is there only while it lies ahead.
    """
    said = dict(detail)
    if "possible_victims" in said:
        listed = said["possible_victims"]
        said["possible_victims"] = [
            _victim(each, staying[each["run"]], now) for each in listed if each["run"] in staying
        ]
    if "would_help" in said:
        said["would_help"] = [each for each in said["would_help"] if not has_passed(each, now)]
    if "next_look_at" in said:
        at = _moment(said["next_look_at"])
        if at is None or at <= now:
            del said["next_look_at"]
        said["next_look"] = _next_look(at, now, recheck_seconds)
    if "expected_start" in said:
        said["expected_start"] = _expected_start(said["expected_start"], now, recheck_seconds)
    if "worst_case_wait" in said:
        said["worst_case_wait"] = _left_of(said["worst_case_wait"], (now - decided_at).total_seconds())
    return said


def runs_in(detail: Mapping[str, Any]) -> list[str]:
    """The runs that a stored detail speaks of as possible victims."""
    return [each["run"] for each in detail.get("possible_victims", ())]


def reason_as_of(reason: str, now: datetime, recheck_seconds: float) -> str:
    """The sentence of a decision; where a time in it has passed, that is said."""
    if not has_passed(reason, now):
        return reason
    return f"{reason}; that time has passed: it is judged again within {format_duration(recheck_seconds)}"


def has_passed(text: str, now: datetime) -> bool:
    """Whether a sentence names a moment (UTC, to the second) that lies behind."""
    return any(datetime.fromisoformat(found) <= now for found in _MOMENT.findall(text))


def _victim(victim: Mapping[str, Any], leaving: bool, now: datetime) -> dict[str, Any]:
    """A run that is still there, with what protects it now as far as time alone tells."""
    if leaving:
        return {**victim, "spared": "it is leaving", "until": None}
    until = _moment(victim.get("until"))
    if until is None or until > now:
        return dict(victim)
    over = f"not protected any more: until {victim['until']} {victim['spared']}"
    return {**victim, "spared": over, "until": None}


def _expected_start(start: str, now: datetime, recheck_seconds: float) -> str:
    """A moment to come, or a text that begins with `none`."""
    at = _moment(start)
    if at is None:
        return reason_as_of(start, now, recheck_seconds)
    return start if at > now else f"none: {start}, by the limits of what ran then, has passed"


def _next_look(at: datetime | None, now: datetime, recheck_seconds: float) -> str:
    if at is not None and 0 < (at - now).total_seconds() <= recheck_seconds:
        return f"in {format_duration(math.ceil((at - now).total_seconds()))}, or with the next change that concerns it"
    if at is not None and timedelta(0) <= now - at < timedelta(seconds=_DUE_SECONDS):
        return "due now"
    return f"with the next change that concerns it, and at least every {format_duration(recheck_seconds)}"


def _left_of(bound: str, seconds: float) -> str:
    """What is left of a longest wait that was counted from the decision; other texts stay."""
    try:
        left = parse_duration(bound) - seconds
    except ValueError:
        return bound
    return format_duration(math.ceil(left)) if left > 0 else f"none: the bound of {bound} has passed"


def _moment(text: str | None) -> datetime | None:
    """A stored moment; None where there is none, or where it lies beyond the calendar."""
    return None if text is None or _MOMENT.fullmatch(text) is None else datetime.fromisoformat(text)
