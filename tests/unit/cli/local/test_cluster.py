"""What a cluster keeps between runs."""

import json
from pathlib import Path

import pytest
from makeway.local.cluster import (
    CLUSTER_ENTRIES,
    ClusterFolder,
    ClusterSettings,
    Wishes,
    ensure_secrets,
    load_settings,
    save_settings,
)
from makeway.local.errors import LocalClusterError


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    return ClusterFolder(root=tmp_path)


def test_what_was_asked_once_stays_until_asked_otherwise(folder: ClusterFolder) -> None:
    save_settings(folder, Wishes(nodes=3, simulate="8xH100-80GB").applied_to(ClusterSettings(http_port=4000)))
    changed = Wishes(nodes=2).applied_to(load_settings(folder))
    assert changed == ClusterSettings(nodes=2, simulate="8xH100-80GB", http_port=4000)
    assert changed.node_names == ("node-1", "node-2")


def test_secrets_are_made_once_private_and_never_shown(folder: ClusterFolder) -> None:
    first = ensure_secrets(folder, ("node-1",))
    more = ensure_secrets(folder, ("node-1", "node-2"))
    assert more.admin_token == first.admin_token
    assert more.node_tokens["node-1"] == first.node_tokens["node-1"]
    assert len({*more.node_tokens.values(), *more.role_passwords.values(), more.admin_token}) == 6
    assert folder.secrets_file.stat().st_mode & 0o777 == 0o600
    assert first.admin_token not in repr(first)


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_a_damaged_file_is_said_with_its_mend(folder: ClusterFolder, content: str) -> None:
    folder.settings_file.write_text(content)
    with pytest.raises(LocalClusterError, match="down --wipe"):
        load_settings(folder)


def test_wipe_knows_every_path_of_the_folder(folder: ClusterFolder) -> None:
    paths = [getattr(folder, name) for name in dir(type(folder)) if isinstance(getattr(type(folder), name), property)]
    assert len(paths) >= 8
    assert {path.name for path in paths} <= CLUSTER_ENTRIES
    assert folder.log("x").parent.name in CLUSTER_ENTRIES
    assert folder.node("x").parent.name in CLUSTER_ENTRIES
    assert json.dumps(sorted(CLUSTER_ENTRIES))
