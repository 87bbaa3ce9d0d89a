"""What can go wrong on the user's side: one small tree, data as fields, the sentence made from them."""

from dataclasses import dataclass
from pathlib import Path

from makeway_schemas.api import FieldProblem, Problem


class MakewayError(Exception):
    """The base of everything that this package raises on purpose."""


class NoContact(MakewayError):
    """Nothing answered at the address, or what answered was not able to serve, for as long as was allowed."""

    def __init__(self, url: str, reason: str, waited_seconds: float) -> None:
        self.url = url
        self.reason = reason
        self.waited_seconds = waited_seconds
        super().__init__(f"no contact with {url} for {waited_seconds:.0f} s: {reason}")


class NoCluster(MakewayError):
    """No context file was found and no address was given."""

    def __init__(self, looked_at: Path) -> None:
        self.looked_at = looked_at
        super().__init__(
            f"no cluster is known: {looked_at} does not exist. Start one with `makeway up`, "
            "name its state folder with --state, or set MAKEWAY_URL and MAKEWAY_TOKEN"
        )


class NoScheduler(MakewayError):
    """The API answers, but no scheduler has owned the pool for as long as the caller was willing to wait."""

    def __init__(self, job_id: str, waited_seconds: float) -> None:
        self.job_id = job_id
        self.waited_seconds = waited_seconds
        super().__init__(
            f"no scheduler has owned the pool for {waited_seconds:.0f} s; job {job_id} is kept and goes on by itself"
        )


class Refused(MakewayError):
    """The server said no: RFC 9457 problem details."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__("\n".join(problem_lines(problem)))


class Declined(MakewayError):
    """The scheduler took a request and did nothing, for a reason that it gave."""


class BadAnswer(MakewayError):
    """An answer that is none of the API's: another program has the address, or its version is too far from ours."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"the answer to {path} is not one that this version understands; see `makeway doctor`: {reason}"
        )


class StillRunning(MakewayError):
    """The wait ended before the job did; the job goes on."""

    def __init__(self, job_id: str, waited_seconds: float) -> None:
        self.job_id = job_id
        self.waited_seconds = waited_seconds
        super().__init__(f"job {job_id} has not ended in {waited_seconds:.0f} s; it goes on")


class FileUnwritable(MakewayError):
    """A file that was to be written cannot be; what was there before is left as it was."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        super().__init__(f"{path} cannot be written: {error.strerror or error}")


class ReplayRefused(MakewayError):
    """A trace, a policy or a value that cannot be replayed; nothing was run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecProblem:
    """One thing wrong with a job or a policy; ``line`` and ``column`` count from 1 and are 0 where there is no file."""

    field: str
    message: str
    source: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}:{self.column}: " if self.line else f"{self.source}: " if self.source else ""
        return f"{place}{self.field}: {self.message}" if self.field else f"{place}{self.message}"


class SpecInvalid(MakewayError):
    """A specification or a policy that no cluster would take; refused before anything was sent."""

    def __init__(self, problems: tuple[SpecProblem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


def problem_lines(problem: Problem) -> list[str]:
    """``field: message`` for each field, else the title and detail."""
    if problem.fields:
        return [_field_line(field) for field in problem.fields]
    return [f"{problem.title}: {problem.detail}" if problem.detail else problem.title]


def _field_line(field: FieldProblem) -> str:
    return f"{field.field}: {field.message}" if field.field else field.message
