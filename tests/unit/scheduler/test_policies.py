"""The policy that the scheduler begins with."""

from pathlib import Path

import pytest
from makeway_policy.presets import DEFAULT, PLAIN
from makeway_runtime.errors import InvalidSetting
from makeway_scheduler.policies import first_policy


def test_it_is_the_default_or_what_the_file_says(tmp_path: Path) -> None:
    assert first_policy(None) == DEFAULT
    file = tmp_path / "policy.json"
    file.write_text('{"preset": "plain"}')
    assert first_policy(file) == PLAIN


def test_a_file_that_contradicts_itself_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"default_class": "huge"}')
    with pytest.raises(InvalidSetting, match="there is no class huge"):
        first_policy(file)
