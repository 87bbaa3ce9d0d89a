"""The typed client of the HTTP API.

``Client`` holds one connection pool and is not shared between threads. Answers are the models of
``makeway_schemas.api``; a refusal is ``makeway.errors.Refused`` with its problem details, an outage that lasts longer
than the client's patience is ``makeway.errors.NoContact``. Start reading at ``Client.submit``.
"""

from makeway.client.client import Client, JobQuery
from makeway.client.transport import Patience
from makeway.errors import MakewayError, NoContact, Refused

__all__ = ["Client", "JobQuery", "MakewayError", "NoContact", "Patience", "Refused"]
