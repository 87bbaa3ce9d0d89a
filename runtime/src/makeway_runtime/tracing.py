"""Trace context, and spans where an OTLP endpoint is configured.

The OpenTelemetry SDK costs memory and start-up time, so it is loaded only by `configure` with an endpoint. Everything
else uses the API, whose spans are no-ops then; a given `traceparent` still travels through unharmed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from makeway_runtime.settings import ServiceSettings

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_TRACER_NAME: Final = "makeway"


def configure(settings: ServiceSettings, *, service: str) -> None:
    """Starts exporting spans when `otlp_endpoint` is set; does nothing otherwise."""
    if settings.otlp_endpoint is None:
        return
    # Not an import statement at the top: the SDK and its exporter cost 15 MiB that most installations never use.
    exporting = importlib.import_module("makeway_runtime.tracing_export")
    exporting.start(endpoint=settings.otlp_endpoint, service=service, environment=settings.environment)


def exporting() -> bool:
    """Whether spans are recorded; what only a span would show need not be computed otherwise."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def shutdown() -> None:
    """Sends what is buffered. Blocks for a few seconds at most."""
    provider = trace.get_tracer_provider()
    stop = getattr(provider, "shutdown", None)
    if stop is not None:
        stop()


def tracer() -> trace.Tracer:
    """Returns the tracer that all services share."""
    return trace.get_tracer(_TRACER_NAME)


def current_traceparent() -> str | None:
    """Returns the W3C traceparent of the current span, or None outside any."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get("traceparent")


def current_trace_id() -> str | None:
    """Returns the current trace's 32 hexadecimal digits, or None outside any."""
    found = trace.get_current_span().get_span_context()
    return f"{found.trace_id:032x}" if found.is_valid else None


def context_of(traceparent: str | None, tracestate: str | None = None) -> context.Context:
    """Returns the context that a header names; an unusable header gives an empty one."""
    carrier: Mapping[str, str] = {
        name: value for name, value in (("traceparent", traceparent), ("tracestate", tracestate)) if value is not None
    }
    return _PROPAGATOR.extract(carrier, context.Context())


@contextmanager
def attached(traceparent: str | None, tracestate: str | None = None) -> Iterator[None]:
    """Makes the context of a header current."""
    token = context.attach(context_of(traceparent, tracestate))
    try:
        yield
    finally:
        context.detach(token)


@contextmanager
def span(
    name: str,
    *,
    kind: trace.SpanKind = trace.SpanKind.INTERNAL,
    traceparent: str | None = None,
    links: tuple[str, ...] = (),
    attributes: Mapping[str, str | int | float | bool] | None = None,
) -> Iterator[trace.Span]:
    """A span under `traceparent`, or under the current one; `links` are traceparents of what it also covers."""
    parent = None if traceparent is None else context_of(traceparent)
    if links and not exporting():
        links = ()
    linked = [trace.Link(found) for found in map(_span_context, links) if found.is_valid]
    with tracer().start_as_current_span(
        name, context=parent, kind=kind, links=linked, attributes=attributes
    ) as started:
        yield started


def _span_context(traceparent: str) -> trace.SpanContext:
    return trace.get_current_span(context_of(traceparent)).get_span_context()
