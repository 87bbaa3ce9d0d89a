"""Writes the JSON Schemas of jobs, policy files and messages: ``python -m makeway_schemas.generate [--check]``.

With ``--check`` nothing is written; the exit code is 1 and the files are named if the committed ones are not current.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from makeway_schemas.events import JobEvent
from makeway_schemas.facts import FactBatch
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.plans import NodePlan
from makeway_schemas.policy_file import PolicyFile
from makeway_schemas.samples import GpuSamples

FOLDER = Path(__file__).parent / "generated"

MODELS: dict[str, type[BaseModel]] = {
    "job_spec": JobSpec,
    "policy_file": PolicyFile,
    "fact_batch": FactBatch,
    "node_plan": NodePlan,
    "job_event": JobEvent,
    "gpu_samples": GpuSamples,
}


def render(document: dict[str, Any]) -> str:
    """The text of a generated JSON file: stable, readable, ending in a newline."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def documents() -> dict[Path, str]:
    """Each generated file with its content."""
    return {FOLDER / f"{name}.schema.json": render(model.model_json_schema()) for name, model in MODELS.items()}


def outdated(files: dict[Path, str]) -> list[Path]:
    """The files whose committed content differs."""
    return [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def write_or_check(files: dict[Path, str], arguments: list[str]) -> int:
    """Write the files, or with ``--check`` only compare. Returns the exit code."""
    stale = outdated(files)
    if "--check" in arguments:
        for path in stale:
            sys.stderr.write(f"{path} is not current: generate it again and commit it\n")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(write_or_check(documents(), sys.argv[1:]))
