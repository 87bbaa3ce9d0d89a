"""Compile the shim while the executor is installed: `shim/*.c` becomes `makeway_executor/bin/makeway-shim`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2"]
# A static program starts without the dynamic linker, which would be most of a shim's start; not every system has
# the static C library, so the second try does without.
LINKING: tuple[list[str], ...] = (["-static"], [])


class ShimBuildHook(BuildHookInterface[Any]):
    """Builds the shim for editable installs and wheels alike."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as belonging to this platform."""
        root = Path(self.root)
        target = root / "src" / "makeway_executor" / "bin" / "makeway-shim"
        compile_shim(root / "shim", target)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append("src/makeway_executor/bin/makeway-shim")


def compile_shim(sources: Path, target: Path) -> None:
    """Compile all of `sources` into `target`, replacing it whole; exits with the compiler's words on failure."""
    compiler = os.environ.get("CC", "cc")
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(".new")
    files = [str(path) for path in sorted(sources.glob("*.c"))]
    errors = ""
    for linking in LINKING:
        command = [compiler, *FLAGS, *linking, "-o", str(fresh), *files]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        if outcome.returncode == 0:
            fresh.replace(target)
            return
        errors = outcome.stderr
    sys.exit(f"makeway needs a C compiler for its shim; {' '.join(command)} failed:\n{errors}")
