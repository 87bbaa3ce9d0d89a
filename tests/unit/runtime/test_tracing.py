"""Trace context travels with and without an exporter."""

import subprocess
import sys

from makeway_runtime.tracing import attached, context_of, current_trace_id, current_traceparent, span
from opentelemetry import trace

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_outside_any_span_there_is_no_traceparent() -> None:
    assert current_traceparent() is None
    assert current_trace_id() is None


def test_a_header_made_current_comes_out_again() -> None:
    with attached(TRACEPARENT):
        assert current_traceparent() == TRACEPARENT
        assert current_trace_id() == "0af7651916cd43dd8448eb211c80319c"
    assert current_traceparent() is None


def test_without_an_exporter_a_span_passes_its_parent_on() -> None:
    with span("work", traceparent=TRACEPARENT, links=(TRACEPARENT, "nonsense")):
        assert current_traceparent() == TRACEPARENT


def test_nonsense_gives_an_empty_context() -> None:
    assert not trace.get_current_span(context_of("00-zz")).get_span_context().is_valid


def test_the_sdk_is_not_loaded_without_an_endpoint() -> None:
    code = "import makeway_runtime.service, sys; sys.exit(any(m.startswith('opentelemetry.sdk') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
