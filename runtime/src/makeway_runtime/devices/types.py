"""Names and sizes of GPU types."""

from __future__ import annotations

import re
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

KNOWN_VRAM_MIB: Final = MappingProxyType(
    {
        "A10-24GB": 23028,
        "A30-24GB": 24576,
        "A40-48GB": 46068,
        "A100-40GB": 40960,
        "A100-80GB": 81920,
        "B200-180GB": 183359,
        "H100-80GB": 81559,
        "H100-94GB": 95830,
        "H200-141GB": 143771,
        "L4-24GB": 23034,
        "L40S-48GB": 46068,
        "RTX3090-24GB": 24576,
        "RTX4090-24GB": 24564,
        "RTX5090-32GB": 32607,
        "T4-16GB": 15360,
        "V100-16GB": 16384,
        "V100-32GB": 32768,
    }
)
"""Type name to the VRAM in MiB that the driver reports."""

_NOISE: Final = re.compile(
    r"^(NVIDIA|TESLA|GEFORCE|QUADRO|SXM\d*|PCIE|NVL|HBM\d*E?|GDDR\d*X?|MIG|\d+G\.\d+GB.*)$", re.IGNORECASE
)
_MEMORY: Final = re.compile(r"^(\d+)\s*GB$", re.IGNORECASE)


def type_name_of(name: str, vram_mib: int) -> str:
    """Returns the type name of a card that the driver calls `name`: model, a dash, the size it is sold under.

    >>> type_name_of("NVIDIA A100-SXM4-80GB", 81920)
    'A100-80GB'
    """
    words = [word for word in re.split(r"[\s\-]+", name) if word]
    stated = next((int(found[1]) for word in words if (found := _MEMORY.match(word))), None)
    model_words = [word for word in words if not _NOISE.match(word) and not _MEMORY.match(word)]
    model = re.sub(r"[^A-Za-z0-9]", "", "".join(model_words)) or "GPU"
    return f"{model}-{stated if stated is not None else _nominal_gb(model, vram_mib)}GB"


def known_type(text: str) -> str:
    """Returns the known type that `text` names, whole or as a model of one size. Raises ValueError with a hint."""
    by_lower = {name.lower(): name for name in KNOWN_VRAM_MIB}
    wanted = text.lower()
    if wanted in by_lower:
        return by_lower[wanted]
    sizes = [name for lower, name in by_lower.items() if lower.rpartition("-")[0] == wanted]
    if len(sizes) == 1:
        return sizes[0]
    near = sizes or [by_lower[name] for name in get_close_matches(wanted, by_lower, n=2, cutoff=0.4)]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ValueError(f"unknown GPU type {text!r}{hint}")


def _nominal_gb(model: str, vram_mib: int) -> int:
    sizes = [
        (abs(vram_mib - known_mib), int(name.rpartition("-")[2].removesuffix("GB")))
        for name, known_mib in KNOWN_VRAM_MIB.items()
        if name.rpartition("-")[0] == model
    ]
    # A model we know, within 5 % of a size we know; else the size as it is, in GiB.
    if sizes and min(sizes)[0] <= vram_mib * 0.05:
        return min(sizes)[1]
    return max(1, round(vram_mib / 1024))
