"""Builds the fake NVML, writes its state, and builds the fake CUDA that adds processes to it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

FAKES = Path(__file__).parent / "fakes"
NVML = "libnvidia-ml.so.1"
CUDA = "libcuda.so.1"


def build(folder: Path, *defines: str) -> Path:
    """Compiles the library into `folder`, with functions left out by defines; returns its path."""
    return _compile(FAKES / "nvml" / "nvml.c", folder / NVML, defines)


def build_cuda(folder: Path, state: Path) -> Path:
    """Compiles the library by which processes appear in this state; returns its path."""
    return _compile(FAKES / "cuda" / "cuda.c", folder / CUDA, (f'STATE="{state}"',))


def _compile(source: Path, library: Path, defines: Sequence[str]) -> Path:
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{library.name}"]
    command = ["gcc", *flags, *(f"-D{define}" for define in defines), "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return library


def write_state(path: Path, *lines: str) -> None:
    """Replaces the state at once; the library reads it at every call."""
    temporary = path.with_suffix(".new")
    temporary.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    temporary.replace(path)
