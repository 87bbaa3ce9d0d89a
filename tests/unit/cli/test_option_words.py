"""A word that an option chooses from is taken in upper and lower case: the documentation has some in capitals."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from makeway.main import app
from makeway.spec.flags import collect, spec_flags
from typer.core import TyperGroup
from typer.testing import CliRunner


def choices(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from choices(command.get_command(context, name), f"{path} {name}")
        return
    for parameter in command.params:
        if hasattr(parameter.type, "choices"):
            yield f"{path} {parameter.opts[0]}", parameter.type


def test_every_option_that_chooses_takes_any_case() -> None:
    found = dict(choices(typer.main.get_command(app), "makeway"))
    assert {"makeway replay --mode", "makeway sim demo --mode", "makeway ps --in"} <= set(found)
    assert [name for name, kind in found.items() if kind.case_sensitive] == []


@pytest.mark.parametrize("mode", ["CHECKPOINT", "Requeue"])
def test_a_mode_is_taken_as_the_documentation_writes_it(mode: str) -> None:
    result = CliRunner().invoke(app, ["replay", "no-such-file", "--mode", mode])
    assert "no-such-file: cannot be read" in result.stderr


@pytest.mark.parametrize(
    ("parameter", "word", "sent"),
    [
        ("preemption_mode", "checkpoint", "CHECKPOINT"), ("preemption_signal", "sigusr1", "SIGUSR1"),
        ("topology", "REQUIRE", "require"), ("on_deadline", "Degrade", "degrade"), ("topology", "Nearby", "Nearby"),
        ("name", "Checkpoint", "Checkpoint"),
    ],
)  # fmt: skip
def test_a_flag_of_a_job_is_sent_in_the_words_of_the_specification(parameter: str, word: str, sent: str) -> None:
    fields = collect(spec_flags(), {parameter: word})
    while isinstance(fields, dict):
        (fields,) = fields.values()
    assert fields == sent
