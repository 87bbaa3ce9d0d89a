"""`python -m makeway_executor`: the node agent of this host, told by MAKEWAY_* variables."""

import sys

from makeway_runtime.service import run

from makeway_executor.app import Executor
from makeway_executor.settings import ExecutorSettings

if __name__ == "__main__":
    sys.exit(run(Executor, ExecutorSettings(), name="executor"))
