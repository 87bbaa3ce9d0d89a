"""The kill matrix: each service ended with SIGKILL at each step of a preemption (laws 2 and 3).

All cells of one service share the kill: each is held at its step on a card of its own when the service is killed, and
goes on at once, while the service is still away.
"""

import pytest
from live_cluster import LiveCluster
from preemption_cells import LANES, Cell, all_of, reach_together

SERVICES = ("scheduler", "admission", "executor-node-1", "kafka", "postgres", "telemetry", "sampler-node-1")

# What is true of each cell when the service is killed; the last three are under way rather than held.
STEPS = {
    "noticed": "noticed",
    "acked": "acked",
    "taken over": "taken over",
    "resumed": "resumed",
    "submitted": "running",
    "leaving": "acked",
    "preemptor leaving": "taken over",
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("service", SERVICES)
def test_a_service_killed_at_each_step_of_a_preemption(cluster: LiveCluster, unique: str, service: str) -> None:
    cells = {
        step: Cell(cluster=cluster, name=f"{unique}-{step.replace(' ', '-')}", card=card)
        for step, card in zip(STEPS, LANES, strict=False)
    }
    bystander = cluster.submit(f"{unique}-bystander", gpu_type=LANES[len(STEPS)])
    reach_together([(cells[step], held) for step, held in STEPS.items()])
    bystander.wait_for("started")
    for cell in cells.values():
        cell.remember()
    cells["submitted"].submit_preemptor()
    cells["leaving"].release_victim()
    cells["preemptor leaving"].preemptor.tell("exit 0")

    killed = cluster.kill(service)
    bystander.tell("exit 7")
    all_of(
        [(step, cells[step].assert_untouched) for step in ("noticed", "acked", "taken over", "resumed", "submitted")]
    )
    all_of([(step, cell.finish) for step, cell in cells.items()])
    cluster.wait_healthy(service, instead_of=killed)
    ended = bystander.wait_end()
    assert (ended.state, ended.exit_code) == ("FAILED", 7)
