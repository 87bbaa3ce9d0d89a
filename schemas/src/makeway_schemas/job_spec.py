"""What a user may ask for. The JSON Schema generated from ``JobSpec`` is the list of fields.

Bounds that hold for every cluster are checked here; what a policy or a team allows is checked by admission. The bounds
on command, script and environment keep a full plan of a node within one message (``topics.MAX_MESSAGE_BYTES``).
"""

import re
import unicodedata
from typing import Annotated, Any, Final, Self

from pydantic import Field, StringConstraints, WithJsonSchema, field_validator, model_validator

from makeway_schemas.durations import Mib, Seconds
from makeway_schemas.job_parts import (
    DURATION_MAX_SECONDS,
    LABELS_MAX_ITEMS,
    Constraints,
    DisruptionGroup,
    Labels,
    NoticeSignal,
    OverdueAction,
    Preemption,
    PreemptionMode,
    Retries,
    SpecModel,
    TopologyWish,
    Whole,
    checked_labels,
)
from makeway_schemas.moments import Moment
from makeway_schemas.names import ClassName, TeamName
from makeway_schemas.whole_numbers import read_whole

__all__ = [
    "DURATION_MAX_SECONDS",
    "GPUS_MAX",
    "JobSpec",
    "NoticeSignal",
    "OverdueAction",
    "PreemptionMode",
    "Retries",
    "SpecModel",
    "TopologyWish",
]

NAME_MAX_CHARACTERS: Final = 253
GPUS_MAX: Final = 4096
VRAM_MAX_MIB: Final = 16 * 1024 * 1024
PRIORITY_MAX: Final = 10_000
SHARES_MAX: Final = 1024
CPUS_MAX: Final = 100_000
MEMORY_MAX_MIB: Final = 1024 * 1024 * 1024
COMMAND_MAX_ITEMS: Final = 1024
LAUNCH_MAX_BYTES: Final = 64 * 1024
ENV_MAX_ITEMS: Final = 256

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_RESERVED_ENV = ("MAKEWAY_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TRACEPARENT", "LD_PRELOAD", "LD_AUDIT")
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


_Item = Annotated[str, StringConstraints(max_length=LAUNCH_MAX_BYTES)]
_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)")


def _range(value: Any) -> tuple[int, int] | None:
    """The two numbers of `min..max`; None for anything else."""
    match = _RANGE.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else (read_whole(match[1]), read_whole(match[2]))


_GPUS_SCHEMA = WithJsonSchema(
    {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": GPUS_MAX},
            {"type": "string", "pattern": r"^[0-9]+\.\.[0-9]+$"},
        ]
    },
    mode="validation",
)
_Duration = Annotated[Seconds, Field(gt=0, le=DURATION_MAX_SECONDS)]


class JobSpec(SpecModel):
    """One job. Exactly one of ``command`` and ``script`` is given."""

    name: str = Field(default="", description="Any printable text up to 253 characters; default: the job's id.")
    labels: Labels = Field(
        default_factory=dict, description="Free labels, shown and filtered by.", max_length=LABELS_MAX_ITEMS
    )
    team: TeamName | None = Field(default=None, description="Default: the token's team.")
    class_: ClassName | None = Field(
        default=None, alias="class", description="urgent, high, normal (default) or low, or P0 to P3."
    )
    priority: Annotated[Whole, Field(ge=0, le=PRIORITY_MAX)] | None = Field(
        default=None, description="An own value within the class's range; default: the class's value."
    )
    command: tuple[_Item, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=COMMAND_MAX_ITEMS,
        description="Program and arguments; never given to a shell.",
    )
    script: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, description="The text of a script, run by its #! line (default /bin/sh)."
    )
    working_dir: Annotated[str, StringConstraints(min_length=1, max_length=4095)] | None = Field(
        default=None,
        description="An absolute folder on the node; default: where the command is given, else the run's own folder.",
    )
    env: dict[str, _Item] = Field(
        default_factory=dict, max_length=ENV_MAX_ITEMS, description="Environment variables of the job."
    )
    gpus: Annotated[Whole, Field(ge=0, le=GPUS_MAX), _GPUS_SCHEMA] = Field(
        default=1,
        description="GPUs, or min..max; with vram_mib or shares so many distinct cards; 0 is a job of CPU and memory.",
    )
    gpus_max: Annotated[Whole, Field(ge=1, le=GPUS_MAX)] | None = Field(
        default=None, description="The second number of gpus: min..max: it takes what quota and room allow."
    )
    gpu_type: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = Field(
        default=None, description="Matched in full, in any case, or through the documented aliases."
    )
    min_vram_mib: Annotated[Mib, Field(ge=1, le=VRAM_MAX_MIB)] | None = Field(
        default=None, description="Whole cards with at least this much memory."
    )
    vram_mib: Annotated[Mib, Field(ge=1, le=VRAM_MAX_MIB)] | None = Field(
        default=None, description="A share of this size of each card instead of whole cards."
    )
    shares: Annotated[Whole, Field(ge=1, le=SHARES_MAX)] | None = Field(
        default=None, description="So many slots of each card, without a size, instead of whole cards."
    )
    mig: Annotated[str, StringConstraints(pattern=r"^[0-9a-z.+]{1,32}$")] | None = Field(
        default=None, description="MIG instances of this profile, such as 1g.5gb, instead of whole cards."
    )
    cpus: Annotated[float, Field(gt=0, le=CPUS_MAX)] | None = Field(
        default=None, description="CPUs to set aside on the node; default: the GPUs' part of them."
    )
    memory: Annotated[Mib, Field(ge=1, le=MEMORY_MAX_MIB)] | None = Field(
        default=None, description="Main memory to set aside on the node; default: the GPUs' part of it."
    )
    topology: TopologyWish = Field(
        default=TopologyWish.PREFER, description="Whether the GPUs must, should or need not be linked by NVLink."
    )
    constraints: Constraints = Field(default_factory=Constraints, description="Where the job may run, or would rather.")
    time_limit: _Duration | None = Field(
        default=None, description="Longest run time, summed over runs; waiting does not count."
    )
    begin_at: Moment | None = Field(
        default=None, description="It does not start before; a date and time with its zone, 2100 at most."
    )
    deadline: Moment | None = Field(
        default=None, description="It should have started by then; a date and time with its zone, 2100 at most."
    )
    on_deadline: OverdueAction | None = Field(
        default=None, description="What becomes of it then: cancel, degrade or promote; default: the policy's."
    )
    max_wait: _Duration | None = Field(default=None, description="Longest wait for its first start, from the submit.")
    on_max_wait: OverdueAction | None = Field(
        default=None, description="What becomes of it then: cancel, degrade or promote; default: the policy's."
    )
    group: DisruptionGroup | None = Field(
        default=None, description="Jobs of the team of which only so many may be stopped at once."
    )
    requeue: bool = Field(
        default=True, strict=True, description="false: a preemption or the loss of its run is its end."
    )
    retries: Retries = Field(default_factory=Retries, description="What happens when the job itself fails.")
    preemptible: bool = Field(default=True, strict=True, description="false needs an allowance of the team.")
    preemption: Preemption = Field(default_factory=Preemption, description="How the job is pushed aside.")

    @field_validator("name")
    @classmethod
    def _printable_name(cls, value: str) -> str:
        if len(value) > NAME_MAX_CHARACTERS:
            raise ValueError(f"at most {NAME_MAX_CHARACTERS} characters; this has {len(value)}")
        if any(unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} or c in _BIDI_CONTROLS for c in value):
            raise ValueError("control characters, line breaks and direction marks are not allowed")
        if value != value.strip():
            raise ValueError("no white space at either end")
        return value

    @field_validator("labels")
    @classmethod
    def _label_names(cls, value: dict[str, str]) -> dict[str, str]:
        return checked_labels(value)

    @field_validator("env")
    @classmethod
    def _env_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if _ENV_NAME.fullmatch(name) is None:
                raise ValueError(f"{name!r} is no name of an environment variable")
            if name.startswith(_RESERVED_ENV):
                raise ValueError(f"{name} is set by makeway and cannot be given")
            if "\0" in text:
                raise ValueError(f"the value of {name} has a NUL character")
        return value

    @field_validator("command", "script", "working_dir")
    @classmethod
    def _no_nul(cls, value: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        texts = (value,) if isinstance(value, str) else value or ()
        if any("\0" in text for text in texts):
            raise ValueError("NUL characters are not allowed")
        return value

    @field_validator("working_dir")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("/"):
            raise ValueError("must be an absolute folder, such as /data/run")
        return value

    @model_validator(mode="before")
    @classmethod
    def _range_of_gpus(cls, value: Any) -> Any:
        """`gpus: 2..4` is 2, and 4 at most."""
        wanted = value.get("gpus") if isinstance(value, dict) else None
        numbers = _range(wanted)
        if numbers is None or max(numbers) > GPUS_MAX:
            return value
        if value.get("gpus_max") is not None:
            raise ValueError("gpus: a range and gpus_max say the same: give one of them")
        return {**value, "gpus": numbers[0], "gpus_max": numbers[1]}

    @field_validator("gpus", mode="before")
    @classmethod
    def _no_larger_range(cls, value: Any) -> Any:
        """A range that goes too far is refused under the name that it was given by."""
        if _range(value) is not None:
            raise ValueError(f"must be at most {GPUS_MAX}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.command is None) == (self.script is None):
            raise ValueError("exactly one of command and script must be given")
        if self.command is not None and not self.command[0]:
            raise ValueError("command: the program's name is empty")
        size = sum(len(text.encode(errors="surrogatepass")) + 1 for text in self._launch_texts())
        if size > LAUNCH_MAX_BYTES:
            raise ValueError(f"command, script and env together are {size} bytes; at most {LAUNCH_MAX_BYTES} fit")
        self._check_cards()
        return self

    def _check_cards(self) -> None:
        if self.vram_mib is not None and self.min_vram_mib is not None:
            raise ValueError("vram_mib asks for a share, min_vram_mib for whole cards: give one of them")
        parts = {"vram_mib": self.vram_mib, "shares": self.shares, "mig": self.mig}
        given = [name for name, value in parts.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are different parts of a card: give one of them")
        if self.gpus == 0 and (given or self.min_vram_mib or self.gpu_type or self.gpus_max):
            raise ValueError(
                "gpus: 0 asks for no card, so a range, gpu_type, vram_mib, min_vram_mib, shares and mig cannot be given"
            )
        if self.gpus_max is not None and self.gpus_max < self.gpus:
            raise ValueError(f"gpus: at most {self.gpus_max} is less than at least {self.gpus}")

    def _launch_texts(self) -> list[str]:
        texts = [*(self.command or ()), self.script or ""]
        for name, value in self.env.items():
            texts += [name, value]
        return texts
