"""A policy as people give it: a file, or the name of a preset. Shared by all commands that take one."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from makeway_policy.checks import problems
from makeway_policy.document import from_document, name_in_document
from makeway_policy.presets import PRESETS
from makeway_policy.rules import Policy
from makeway_schemas.policy_file import PolicyFile
from pydantic import ValidationError

from makeway.documents import reader
from makeway.documents.problems import placed, problems_of
from makeway.documents.reader import Document, Location
from makeway.errors import Refused, SpecInvalid, SpecProblem

_WHAT: Final = "a policy file is a mapping of fields, such as `preset: default`"


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenPolicy:
    """A policy that is in order; ``document`` is what was said, in plain values, and ``policy`` what it means."""

    source: str
    document: dict[str, Any]
    policy: Policy
    file: Document | None = None


def is_preset(name: str) -> bool:
    """Whether the name is that of a preset; any other is a file's."""
    return name in PRESETS


def load_policy(name: str) -> GivenPolicy:
    """The policy of a preset or, for any other name, of a file; ``-`` is stdin. Raises SpecInvalid."""
    if is_preset(name):
        return GivenPolicy(source=f"preset {name}", document={"preset": name}, policy=PRESETS[name])
    if not name:
        message = f"the policy's name is empty; it is a file or a preset: {', '.join(PRESETS)}"
        raise SpecInvalid((SpecProblem(field="", message=message),))
    path = Path(name)
    if name != "-" and path.name == name and not path.suffix and not path.exists():
        message = f"is neither a file nor a preset; presets are {', '.join(PRESETS)}"
        raise SpecInvalid((SpecProblem(field="", message=message, source=name),))
    return _checked(reader.load(name, _WHAT))


def read_policy(text: str, source: str) -> GivenPolicy:
    """The policy of a file's text. Raises SpecInvalid with file, line and column of each problem."""
    return _checked(reader.parse(text, source, _WHAT))


def _checked(file: Document) -> GivenPolicy:
    try:
        document = PolicyFile.model_validate(file.values).document()
    except ValidationError as error:
        found = problems_of(error, PolicyFile)
        raise SpecInvalid(tuple(placed(message, location, file) for message, location in found)) from error
    policy = from_document(document)
    wrong = tuple(_contradictions(policy, file))
    if wrong:
        raise SpecInvalid(wrong)
    return GivenPolicy(source=file.source, document=document, policy=policy, file=file)


def placed_in(given: GivenPolicy, refused: Refused) -> SpecInvalid | None:
    """A server's refusal of single fields with the lines that they have in the file; None for any other refusal."""
    if given.file is None or not refused.problem.fields:
        return None
    return SpecInvalid(
        tuple(placed(each.message, tuple(each.field.split(".")), given.file) for each in refused.problem.fields)
    )


def _contradictions(policy: Policy, file: Document) -> Iterator[SpecProblem]:
    """What is in order value by value and does not fit together; one of the values stands in the file."""
    for sentence in problems(policy):
        path, _, message = sentence.partition(": ")
        location: Location = tuple(name_in_document(path).split("."))
        other = message.rpartition("class ")[2].split(" ")[0]
        yield placed(message, location, file, also=(("classes", other), ("delta",), ("preset",)))
