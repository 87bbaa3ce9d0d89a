"""From a JSON object to a validated job, or to the list of fields that are wrong, each with its limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from makeway_schemas.job_spec import JobSpec
from makeway_schemas.refusals import field_refusal
from pydantic import BaseModel, ValidationError

from makeway_admission.errors import Refused

ModelT = TypeVar("ModelT", bound=BaseModel)


def parse_job(document: Mapping[str, Any]) -> JobSpec:
    """The job of a request. Raises Refused with every field that is wrong."""
    return parse_model(JobSpec, document)


def parse_model(model: type[ModelT], document: Mapping[str, Any]) -> ModelT:
    """A request's model. Raises Refused with every field that is wrong, named as in the request."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise Refused(field_refusal(model, error.errors(include_url=False, include_input=False))) from error
