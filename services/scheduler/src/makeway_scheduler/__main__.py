"""``python -m makeway_scheduler``."""

import sys

from makeway_runtime.service import run

from makeway_scheduler.app import Scheduler
from makeway_scheduler.settings import SchedulerSettings

if __name__ == "__main__":
    sys.exit(run(Scheduler, SchedulerSettings(), name="scheduler"))
