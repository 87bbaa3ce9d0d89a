"""The real supervisor and servers with stand-ins for the services, so that it can be tested by itself."""

import os
import sys
from dataclasses import replace
from pathlib import Path

from makeway.local.child import Pace
from makeway.local.cluster import ClusterFolder, ClusterSecrets, ClusterSettings
from makeway.local.services import Addresses, ServiceSpec, StopOrder, service_specs
from makeway.local.supervisor import Parts, main

STAND_IN = Path(__file__).with_name("stand_in_service.py")


def stand_ins(
    folder: ClusterFolder, settings: ClusterSettings, secrets: ClusterSecrets, addresses: Addresses
) -> list[ServiceSpec]:
    """The real list with another program in each place."""
    return [
        replace(
            spec,
            command=(sys.executable, "-S", str(STAND_IN)),
            environment={**spec.environment, **({"EXECUTOR": "1"} if spec.order is StopOrder.EXECUTOR else {})},
        )
        for spec in service_specs(folder, settings, secrets, addresses)
    ]


if __name__ == "__main__":
    fast = Pace(first_delay_seconds=0.05, probe_starting_seconds=0.05, probe_healthy_seconds=0.2)
    provision = tuple(os.environ["STAND_IN_PROVISION"].split()) if "STAND_IN_PROVISION" in os.environ else ("true",)
    sys.exit(main(Parts(services=stand_ins, provision=provision, pace=fast)))
