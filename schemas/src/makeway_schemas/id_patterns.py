"""How identifiers look, for whoever only checks them; `ids` says what they are and makes them."""

from typing import Final

ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
JOB_ID_LENGTH: Final = 12

JOB_ID_PATTERN = rf"^[{ALPHABET}]{{{JOB_ID_LENGTH}}}$"
RUN_ID_PATTERN = rf"^[{ALPHABET}]{{{JOB_ID_LENGTH}}}\.[1-9][0-9]{{0,8}}$"
NODE_ID_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"
GPU_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9:/_.-]{0,126}$"
POOL_PATTERN = NODE_ID_PATTERN
TEAM_PATTERN = r"^[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?$"
