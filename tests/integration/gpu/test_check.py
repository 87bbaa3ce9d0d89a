"""`make test-gpu` on fake drivers: the checks themselves, and a whole cluster on the path through pynvml.

The services load a fake libnvidia-ml, the jobs a fake libcuda that puts them on its card. What only real drivers can
show stays with `make test-gpu`.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import nvml_library
import pytest

CHECK = Path(__file__).parents[2] / "gpu" / "check.py"
CARD = (
    "card uuid=GPU-0f0f name=NVIDIA_H200 bus=00000000:07:00.0 total=143771 reserved=500 used=auto"
    " gpu=12 mem=3 temp=40 power=100000 sm=1980 memclk=3201 mig=0"
)


def checked(*arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHECK), *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKEWAY_")}
    return subprocess.run(
        command, env=inherited | environment, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.mark.timeout(300)
def test_every_check_but_torch_holds_on_fake_drivers(tmp_path: Path) -> None:
    state = tmp_path / "state"
    nvml_library.write_state(state, CARD)
    nvml_library.build(tmp_path)
    nvml_library.build_cuda(tmp_path, state)
    drivers = {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_NVML_STATE": str(state)}
    done = checked("--without-torch", "--rounds", "1", environment=drivers)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "all checks passed" in done.stdout
    assert "info  submit to start of the urgent one: ms median" in done.stdout


def test_without_a_driver_it_says_that_nothing_was_checked(tmp_path: Path) -> None:
    nvml_library.build(tmp_path)
    done = checked(environment={"LD_LIBRARY_PATH": str(tmp_path)})
    assert done.returncode == 3
    assert "nothing was checked" in done.stderr
