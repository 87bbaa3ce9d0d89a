"""``sim scenario``: scenario files on the virtual clock."""

from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer
from makeway_simulator.errors import ScenarioError
from makeway_simulator.scenario.document import ScenarioFile
from makeway_simulator.scenario.expectations import Verdict
from makeway_simulator.scenario.forms import TAGS
from makeway_simulator.scenario.runner import Played, play_all
from makeway_simulator.scenario.timeline import Entry, timeline
from makeway_simulator.scenario.virtual import VirtualDriver
from pydantic import ValidationError

from makeway.commands.meaningless import refuse_given
from makeway.commands.replay import Output
from makeway.documents import reader
from makeway.documents.problems import placed, problems_of
from makeway.documents.reader import Document, Location, dotted
from makeway.errors import SpecInvalid
from makeway.output import OutputFormat, print_json, print_out, print_table, safe
from makeway.policy_file import GivenPolicy, load_policy, read_policy

_WHAT = "a scenario file is a mapping of fields, such as `cluster: {nodes: [node-a]}`"


def scenario(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Scenario files; - is stdin.")],
    policy: Annotated[
        str | None, typer.Option(help="A preset or a policy file in place of the scenarios' own policy.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only what is otherwise than wanted.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Play scenario files on a virtual clock; exit code 1 if anything is otherwise than they want it."""
    if output is OutputFormat.JSON:
        refuse_given(context, ("quiet",), "with --output json")
    given = scenario_policy() if policy is None else load_policy(policy)
    driver = VirtualDriver(given.document)
    played = [each for name in files for each in _played(name, driver)]
    if output is OutputFormat.JSON:
        print_json({"scenarios": [_as_json(each) for each in played]})
    else:
        for each in played:
            _print(each, quiet=quiet)
    if not all(each.good for each in played):
        raise typer.Exit(1)


def scenario_policy() -> GivenPolicy:
    """The policy under which scenarios are played. Raises SpecInvalid."""
    file = resources.files("makeway_simulator.scenario") / "scenario.yaml"
    return read_policy(file.read_text(encoding="utf-8"), "scenario.yaml")


def load_scenario(name: str) -> tuple[Document, ScenarioFile]:
    """A scenario file. Raises SpecInvalid with file, line and column of each problem."""
    document = reader.load(name, _WHAT)
    values = {"id": Path(name).stem, **document.values}
    try:
        return document, ScenarioFile.model_validate(values)
    except ValidationError as error:
        found = problems_of(error, ScenarioFile, TAGS)
        raise SpecInvalid(tuple(placed(message, location, document) for message, location in found)) from error


def _played(name: str, driver: VirtualDriver) -> list[Played]:
    document, file = load_scenario(name)
    try:
        return list(play_all(file, driver))
    except ScenarioError as error:
        problem = placed(error.problem, _location(error.field, document), document)
        if not problem.line:  # about something that is missing: the file's beginning
            problem = replace(problem, line=1, column=1)
        raise SpecInvalid((problem,)) from error


def _location(field: str, document: Document) -> Location:
    """Where a field's path leads; names in it may have dots themselves, as a range of jobs has."""
    for location in document.places:
        if dotted(location) == field:
            return location
    return tuple(
        int(part) if part.isdecimal() else part for part in field.replace("[", ".").replace("]", "").split(".")
    )


def _print(played: Played, *, quiet: bool) -> None:
    wrong = [each for each in played.verdicts if each.problems]
    print_out(f"{'ok' if played.good else 'OTHERWISE'}  {safe(played.case.name)}")
    if not quiet:
        print_table(("AT", "WHAT", "JOB", "WHERE"), [_row(each) for each in timeline(played.history)])
    for each in wrong if quiet else played.verdicts:
        print_out(f"  {'otherwise' if each.problems else 'as wanted'}: {safe(str(each.wanted))}")
        for problem in each.problems:
            print_out(f"    {safe(str(problem))}")
    if not quiet:
        print_out("")


def _row(entry: Entry) -> tuple[str, str, str, str]:
    return (f"{entry.at:g}", entry.what, entry.job, entry.where)


def _as_json(played: Played) -> dict[str, Any]:
    return {
        "name": played.case.name,
        "good": played.good,
        "timeline": [
            {"at": each.at, "what": each.what, "job": each.job, "where": each.where}
            for each in timeline(played.history)
        ],
        "expectations": [_verdict(each) for each in played.verdicts],
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {"wanted": verdict.wanted, "good": not verdict.problems, "problems": list(verdict.problems)}
