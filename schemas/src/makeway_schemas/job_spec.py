"""What a user may ask for. The JSON Schema generated from ``JobSpec`` is the list of fields.

Bounds that hold for every cluster are checked here; what a policy or a team allows is checked by admission. The bounds
on command, script and environment keep a full plan of a node within one message (``topics.MAX_MESSAGE_BYTES``).
"""

import re
import unicodedata
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from makeway_schemas.durations import Mib, Seconds
from makeway_schemas.ids import TEAM_PATTERN

NAME_MAX_CHARACTERS: Final = 253
GPUS_MAX: Final = 4096
VRAM_MAX_MIB: Final = 16 * 1024 * 1024
PRIORITY_MAX: Final = 10_000
DURATION_MAX_SECONDS: Final = 366 * 86400.0
COMMAND_MAX_ITEMS: Final = 1024
LAUNCH_MAX_BYTES: Final = 64 * 1024
ENV_MAX_ITEMS: Final = 256
LABELS_MAX_ITEMS: Final = 64

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,125}[A-Za-z0-9])?")
CLASS_NAME_PATTERN: Final = r"^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$"
_RESERVED_ENV = ("MAKEWAY_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TRACEPARENT", "LD_PRELOAD", "LD_AUDIT")
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


class PreemptionMode(StrEnum):
    """What a stopped run means: OFF is never stopped; CANCEL ends the job; the others put it back in the queue."""

    OFF = "OFF"
    CANCEL = "CANCEL"
    REQUEUE = "REQUEUE"
    CHECKPOINT = "CHECKPOINT"


class NoticeSignal(StrEnum):
    """The signals that may carry the stop notice."""

    SIGTERM = "SIGTERM"
    SIGINT = "SIGINT"
    SIGUSR1 = "SIGUSR1"
    SIGUSR2 = "SIGUSR2"
    SIGHUP = "SIGHUP"


class SpecModel(BaseModel):
    """Frozen; an unknown field is refused; numbers are not made of texts nor whole numbers of fractions."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


class Preemption(SpecModel):
    """How this job is pushed aside; what it leaves out comes from its class."""

    mode: PreemptionMode | None = Field(default=None, description="OFF, CANCEL, REQUEUE or CHECKPOINT.")
    grace: Annotated[Seconds, Field(ge=0, le=DURATION_MAX_SECONDS)] | None = Field(
        default=None, description="Time between the stop notice and SIGKILL, within the class's maximum."
    )
    signal: NoticeSignal = Field(default=NoticeSignal.SIGTERM, description="The signal that carries the notice.")


_Item = Annotated[str, StringConstraints(max_length=LAUNCH_MAX_BYTES)]
_Whole = Annotated[int, Field(strict=True)]


class JobSpec(SpecModel):
    """One job. Exactly one of ``command`` and ``script`` is given."""

    name: str = Field(default="", description="Any printable text up to 253 characters; default: the job's id.")
    labels: dict[str, Annotated[str, StringConstraints(max_length=253)]] = Field(
        default_factory=dict, description="Free labels, shown and filtered by.", max_length=LABELS_MAX_ITEMS
    )
    team: Annotated[str, StringConstraints(pattern=TEAM_PATTERN)] | None = Field(
        default=None, description="Default: the token's team."
    )
    class_: Annotated[str, StringConstraints(pattern=CLASS_NAME_PATTERN)] | None = Field(
        default=None, alias="class", description="urgent, high, normal (default) or low, or P0 to P3."
    )
    priority: Annotated[_Whole, Field(ge=0, le=PRIORITY_MAX)] | None = Field(
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
        default=None, description="An absolute folder on the node; default: the run's own folder."
    )
    env: dict[str, _Item] = Field(
        default_factory=dict, max_length=ENV_MAX_ITEMS, description="Environment variables of the job."
    )
    gpus: Annotated[_Whole, Field(ge=0, le=GPUS_MAX)] = Field(
        default=1, description="GPUs; with vram_mib that many distinct cards; 0 is a job of CPU and memory only."
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
    time_limit: Annotated[Seconds, Field(gt=0, le=DURATION_MAX_SECONDS)] | None = Field(
        default=None, description="Longest run time, summed over runs; waiting does not count."
    )
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
        for name, text in value.items():
            if _LABEL_NAME.fullmatch(name) is None:
                raise ValueError(f"{name!r} is no label: up to 127 letters, digits, '_', '.', '/', '-'")
            if not text.isprintable():
                raise ValueError(f"the value of {name!r} has characters that cannot be printed")
        return value

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

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.command is None) == (self.script is None):
            raise ValueError("exactly one of command and script must be given")
        if self.command is not None and not self.command[0]:
            raise ValueError("command: the program's name is empty")
        size = sum(len(text.encode(errors="surrogatepass")) + 1 for text in self._launch_texts())
        if size > LAUNCH_MAX_BYTES:
            raise ValueError(f"command, script and env together are {size} bytes; at most {LAUNCH_MAX_BYTES} fit")
        if self.vram_mib is not None and self.min_vram_mib is not None:
            raise ValueError("vram_mib asks for a share, min_vram_mib for whole cards: give one of them")
        if self.gpus == 0 and (self.vram_mib or self.min_vram_mib or self.gpu_type):
            raise ValueError("gpus: 0 asks for no card, so gpu_type, vram_mib and min_vram_mib cannot be given")
        return self

    def _launch_texts(self) -> list[str]:
        texts = [*(self.command or ()), self.script or ""]
        for name, value in self.env.items():
            texts += [name, value]
        return texts
