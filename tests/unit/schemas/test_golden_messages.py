"""Messages of former releases must still parse, and mean the same.

A file in ``tests/golden`` is never changed: a new version of a message gets a new file.
"""

import json
from pathlib import Path

import pytest
from makeway_schemas.events import JobEvent
from makeway_schemas.facts import FactBatch
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.plans import NodePlan
from makeway_schemas.samples import GpuSamples
from pydantic import BaseModel

FOLDER = Path(__file__).parents[2] / "golden"
MODELS: dict[str, type[BaseModel]] = {
    "facts": FactBatch,
    "plan": NodePlan,
    "event": JobEvent,
    "samples": GpuSamples,
    "spec": JobSpec,
}
FILES = sorted(FOLDER.glob("*.json"))


def test_every_message_has_a_golden_file() -> None:
    assert {path.name.partition(".")[0] for path in FILES} == set(MODELS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_golden_message_parses_and_loses_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    message = MODELS[path.name.partition(".")[0]].model_validate_json(text)
    kept = json.loads(message.model_dump_json(exclude_unset=True, by_alias=True))
    assert kept == json.loads(text)


@pytest.mark.parametrize(
    "path", [path for path in FILES if not path.name.startswith("spec")], ids=lambda path: path.name
)
def test_a_field_of_a_newer_sender_is_ignored(path: Path) -> None:
    body = json.loads(path.read_text(encoding="utf-8"))
    body["a_field_of_tomorrow"] = {"x": 1}
    MODELS[path.name.partition(".")[0]].model_validate_json(json.dumps(body))


def test_every_kind_of_fact_is_among_the_golden_ones() -> None:
    kinds = {
        fact.kind
        for path in FILES
        if path.name.startswith("facts")
        for fact in FactBatch.model_validate_json(path.read_text()).facts
    }
    assert kinds == set(FactBatch.model_json_schema()["properties"]["facts"]["items"]["discriminator"]["mapping"])
