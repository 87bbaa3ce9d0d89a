"""What all models of the API stand on, and how it says that something is wrong."""

from pydantic import BaseModel, ConfigDict, Field

PROBLEM_TYPE = "application/problem+json"


class ApiModel(BaseModel):
    """A frozen value at the border. A newer server may add fields: a client ignores those it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, ser_json_inf_nan="null")


class FieldProblem(ApiModel):
    """What is wrong with one field: its path as in the request, and the limit that it breaks."""

    field: str
    message: str


class Problem(ApiModel):
    """RFC 9457. ``code`` is one of a few stable words, documented in docs/api.md."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    code: str
    fields: tuple[FieldProblem, ...] = ()


class Health(ApiModel):
    """``GET /healthz`` of any service."""

    healthy: bool
    checks: dict[str, str] = Field(default_factory=dict)
