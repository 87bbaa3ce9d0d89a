"""Names that people give to teams, nodes and classes: what is wrong with one is said in words, its length first."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, StringConstraints

from makeway_schemas.id_patterns import NODE_ID_PATTERN, TEAM_PATTERN

_MOST_CHARACTERS: Final = 63
CLASS_NAME_PATTERN: Final = r"^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$"


def team_name_objection(name: str) -> str | None:
    """Why a text is no team's name; None where it is one."""
    return _objection(name, TEAM_PATTERN, "lower case letters, digits, '_', '.' and '-'")


def node_name_objection(name: str) -> str | None:
    """Why a text is no node's name; None where it is one."""
    return _objection(name, NODE_ID_PATTERN, "lower case letters, digits, '.' and '-'")


def class_name_objection(name: str) -> str | None:
    """Why a text is no class's name; None where it is one."""
    return _objection(name, CLASS_NAME_PATTERN, "letters, digits, '_' and '-'")


def _objection(name: str, pattern: str, characters: str) -> str | None:
    if not name:
        return "must not be empty"
    if len(name) > _MOST_CHARACTERS:
        return f"must have at most {_MOST_CHARACTERS} characters; this has {len(name)}"
    if re.fullmatch(pattern, name) is None:
        return f"must be of {characters}, a letter or digit first and last"
    return None


def _checked_by(objection: Callable[[str], str | None]) -> BeforeValidator:
    def check(value: Any) -> Any:
        problem = objection(value) if isinstance(value, str) else None
        if problem is not None:
            raise ValueError(problem)
        return value

    return BeforeValidator(check)


TeamName = Annotated[str, StringConstraints(pattern=TEAM_PATTERN), _checked_by(team_name_objection)]
NodeName = Annotated[str, StringConstraints(pattern=NODE_ID_PATTERN), _checked_by(node_name_objection)]
ClassName = Annotated[str, StringConstraints(pattern=CLASS_NAME_PATTERN), _checked_by(class_name_objection)]
