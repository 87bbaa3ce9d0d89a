"""`python -m makeway_admission`."""

import sys

from makeway_runtime.service import run

from makeway_admission.app import AdmissionService
from makeway_admission.settings import AdmissionSettings

if __name__ == "__main__":
    sys.exit(run(AdmissionService, AdmissionSettings(), name="admission"))
