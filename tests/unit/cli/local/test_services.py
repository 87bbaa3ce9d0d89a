"""What each service is told."""

import json
from pathlib import Path

import pytest
from makeway.local.cluster import DATABASE_ROLES, ClusterFolder, ClusterSecrets, ClusterSettings
from makeway.local.services import Addresses, ServiceSpec, role_dsn, service_specs


@pytest.fixture
def specs(tmp_path: Path) -> dict[str, ServiceSpec]:
    settings = ClusterSettings(nodes=2, simulate="4xA100-80GB", http_port=4100)
    secrets = ClusterSecrets(
        postgres_password="the superuser's",
        kafka_password="broker",
        admin_token="admin",
        role_passwords={role: f"of {role}" for role in DATABASE_ROLES},
        node_tokens={"node-1": "one", "node-2": "two"},
    )
    addresses = Addresses(
        postgres_dsn="postgresql://postgres:root%20password@/makeway?host=%2Frun%2Fpg&port=5432",
        kafka_bootstrap="127.0.0.1:9",
        kafka_username="makeway",
        kafka_password="broker",
        runtime_folder=tmp_path / "run",
        inherited={"PATH": "/bin", "MAKEWAY_TOKEN": "of the user", "MAKEWAY_LOG_LEVEL": "debug"},
    )
    (tmp_path / "run").mkdir()
    made = service_specs(ClusterFolder(root=tmp_path / "state"), settings, secrets, addresses)
    return {spec.name: spec for spec in made}


def test_there_is_one_executor_and_sampler_a_node(specs: dict[str, ServiceSpec]) -> None:
    nodes = {f"{what}-node-{number}" for what in ("executor", "sampler") for number in (1, 2)}
    assert set(specs) == {"admission", "scheduler", "telemetry"} | nodes


def test_each_service_with_tables_has_its_own_role_and_no_other_secret(specs: dict[str, ServiceSpec]) -> None:
    for name in ("admission", "scheduler", "telemetry"):
        dsn = specs[name].environment["MAKEWAY_POSTGRES_DSN"]
        assert dsn == f"postgresql://makeway_{name}:of%20makeway_{name}@/makeway?host=%2Frun%2Fpg&port=5432"
    assert not any("root%20password" in value for spec in specs.values() for value in spec.environment.values())


def test_a_node_has_no_database_and_only_its_own_token(specs: dict[str, ServiceSpec]) -> None:
    environment = specs["executor-node-2"].environment
    assert "MAKEWAY_POSTGRES_DSN" not in environment
    assert environment["MAKEWAY_NODE_TOKEN"] == "two"
    assert environment["MAKEWAY_NODE_NAME"] == "node-2"
    assert environment["MAKEWAY_SIMULATE"] == "4xA100-80GB"
    assert environment["MAKEWAY_ADMISSION_URL"] == "http://127.0.0.1:4100"
    assert "MAKEWAY_NODE_TOKEN" not in specs["sampler-node-2"].environment
    assert not {"one", "admin"} & set(environment.values())
    assert environment["MAKEWAY_RUNTIME_DIR"] != specs["executor-node-1"].environment["MAKEWAY_RUNTIME_DIR"]


def test_all_nodes_have_one_folder_for_checkpoints(specs: dict[str, ServiceSpec], tmp_path: Path) -> None:
    executors = [specs[f"executor-node-{number}"].environment for number in (1, 2)]
    assert {each["MAKEWAY_CHECKPOINT_ROOT"] for each in executors} == {str(tmp_path / "state" / "checkpoints")}


def test_admission_hears_of_the_first_tokens(specs: dict[str, ServiceSpec]) -> None:
    environment = specs["admission"].environment
    assert environment["MAKEWAY_BOOTSTRAP_TOKEN"] == "admin"
    assert json.loads(environment["MAKEWAY_NODE_TOKENS"]) == {"node-1": "one", "node-2": "two"}


def test_the_users_own_settings_pass_but_not_their_token(specs: dict[str, ServiceSpec]) -> None:
    for spec in specs.values():
        assert spec.environment["MAKEWAY_LOG_LEVEL"] == "debug"
        assert "MAKEWAY_TOKEN" not in spec.environment


def test_a_login_replaces_the_one_in_an_address() -> None:
    assert role_dsn("postgresql://a:b@db:5432/x?sslmode=require", "r", "p@/") == (
        "postgresql://r:p%40%2F@db:5432/x?sslmode=require"
    )
    assert role_dsn("postgresql://db/x", "r", "p") == "postgresql://r:p@db/x"
