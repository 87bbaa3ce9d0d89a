"""Texts that JSON can carry and the database cannot keep."""

from __future__ import annotations

from makeway_schemas.api import FieldProblem


def unkeepable_text(value: object, path: str = "") -> FieldProblem | None:
    """The first text with a NUL character in a JSON value, named by its path; None where there is none."""
    if isinstance(value, str):
        return FieldProblem(field=path, message="NUL characters are not allowed") if "\0" in value else None
    if isinstance(value, dict):
        named = ((f"{path}.{name}" if path else str(name), inner) for name, inner in value.items())
        for inner_path, inner in named:
            problem = unkeepable_text(inner, inner_path)
            if problem is not None:
                return problem
    if isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            problem = unkeepable_text(inner, f"{path}[{place}]")
            if problem is not None:
                return problem
    return None
