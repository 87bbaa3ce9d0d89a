"""The policy of a case: the runner's, with what the case says otherwise."""

from collections.abc import Mapping
from typing import Any

from makeway_policy.checks import problems
from makeway_policy.document import from_document
from makeway_policy.rules import Policy
from makeway_schemas.policy_file import PolicyFile
from pydantic import ValidationError

from makeway_simulator.errors import ScenarioError


def merged(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A policy's document with other values; classes and victim weights entry by entry."""
    found = dict(document)
    for name, value in changes.items():
        old = found.get(name)
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        found[name] = merged(old, value) if both and isinstance(old, Mapping) else value
    return found


def policy_of(document: Mapping[str, Any]) -> Policy:
    """What a document means. Raises ScenarioError for one that contradicts itself."""
    try:
        policy = from_document(PolicyFile.model_validate(document).document())
    except ValidationError as error:
        detail = error.errors()[0]
        raise ScenarioError(
            "policy." + ".".join(map(str, detail["loc"])),
            detail["msg"].removeprefix("Value error, ").removeprefix("Input "),
        ) from error
    wrong = problems(policy)
    if wrong:
        raise ScenarioError("policy", "; ".join(wrong))
    return policy
