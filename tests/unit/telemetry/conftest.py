"""Fixtures of the telemetry's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # `import sampler_stand` from any test here
