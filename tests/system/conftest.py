"""One live cluster a session, shared by tests on different cards; clusters of a test's own where it must be so."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from laws import assert_laws, end_all
from live_cluster import LiveCluster, live_cluster
from makeway.commands.scenario import scenario_policy
from preemption_cells import LANES, POOL

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """A cluster of one node with four cards of one type and one of each lane's; team `default` may do everything."""
    simulate = ",".join([f"4x{POOL}", *(f"1x{lane}" for lane in LANES)])
    settings = {"QUARANTINE_AFTER_SECONDS": "3", "PROBATION_SECONDS": "1"}
    with live_cluster(tmp_path_factory.mktemp("shared"), simulate=simulate, settings=settings) as cluster:
        cluster.allow_everything("default")
        yield cluster


@pytest.fixture
def cluster(shared_cluster: LiveCluster, request: pytest.FixtureRequest) -> Iterator[LiveCluster]:
    """The shared cluster. After each test all its jobs are at their end, and the laws are looked at."""
    yield from _checked(shared_cluster, request)


@pytest.fixture
def scenario_cluster(shared_cluster: LiveCluster, request: pytest.FixtureRequest) -> Iterator[LiveCluster]:
    """The shared cluster under the policy of scenarios: one class, in which the larger of two priorities evicts."""
    client = shared_cluster.client
    client.apply_policy("default", scenario_policy().document)
    yield from _checked(shared_cluster, request)
    client.apply_policy("default", {"preset": "default"})


@pytest.fixture
def new_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., LiveCluster]]:
    """Makes a cluster of this test's own: `new_cluster(simulate="1xT4", nodes=2, settings={...})`."""
    with ExitStack() as stack:

        def make(**options: Any) -> LiveCluster:
            cluster = stack.enter_context(live_cluster(tmp_path / f"cluster-{next(_numbers)}", **options))
            stack.callback(lambda: _check(cluster, request))
            return cluster

        yield make


@pytest.fixture
def unique() -> str:
    """Begins the names of this test's jobs."""
    return f"t{next(_numbers)}"


def _checked(cluster: LiveCluster, request: pytest.FixtureRequest) -> Iterator[LiveCluster]:
    cluster.jobs.clear()
    yield cluster
    _check(cluster, request)
    cluster.jobs.clear()


def _check(cluster: LiveCluster, request: pytest.FixtureRequest) -> None:
    end_all(cluster)
    if not getattr(request.node, "failed", False):
        assert_laws(cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Notes on the test whether it failed, and shows what the services said last."""
    report = yield
    if report.when == "call" and report.failed:
        item.failed = True  # type: ignore[attr-defined]
        cluster = getattr(item, "funcargs", {}).get("cluster")
        if isinstance(cluster, LiveCluster) and cluster.root.exists():
            for name in ("admission", "scheduler", "executor-node-1"):
                report.sections.append((f"log of {name}", cluster.tail(name)))
    return report
