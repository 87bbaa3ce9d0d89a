"""Builds the fake NVML and writes its state."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "fakes" / "nvml" / "nvml.c"
NAME = "libnvidia-ml.so.1"


def build(folder: Path, *defines: str) -> Path:
    """Compiles the library into `folder`, with functions left out by defines; returns its path."""
    library = folder / NAME
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{NAME}"]
    command = ["gcc", *flags, *(f"-D{define}" for define in defines), "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return library


def write_state(path: Path, *lines: str) -> None:
    """Replaces the state at once; the library reads it at every call."""
    temporary = path.with_suffix(".new")
    temporary.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    temporary.replace(path)
