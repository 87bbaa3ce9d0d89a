"""The policy that a service is told to begin with: none, a good file, or a start that is refused with its reason."""

from pathlib import Path

import pytest
from makeway_runtime.errors import InvalidSetting
from makeway_runtime.policy_setting import policy_document


def test_without_a_file_nothing_is_said() -> None:
    assert policy_document(None) == {}


def test_a_file_is_what_it_says(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"preset": "plain", "hold_expiry": "1m"}')
    assert policy_document(file) == {"preset": "plain", "hold_expiry": 60.0}


@pytest.mark.parametrize("text", ["delta: 3", '{"detla": 3}', "[]", ""])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "policy.json"
    file.write_text(text)
    with pytest.raises(InvalidSetting, match=r"MAKEWAY_POLICY_FILE: .*policy\.json"):
        policy_document(file)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"MAKEWAY_POLICY_FILE: .*nosuch\.json"):
        policy_document(tmp_path / "nosuch.json")
