"""Exporting spans over OTLP/HTTP. Loaded by `tracing.configure` alone, when an endpoint is set."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

EXPORT_TIMEOUT_SECONDS = 3


def start(*, endpoint: str, service: str, environment: str) -> None:
    """Installs the global tracer provider. `endpoint` is the collector's base address."""
    resource = Resource.create(
        {
            "service.name": f"makeway-{service}",
            "service.namespace": "makeway",
            "deployment.environment.name": environment,
        }
    )
    provider = TracerProvider(resource=resource)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_TIMEOUT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
