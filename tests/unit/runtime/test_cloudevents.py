"""CloudEvents headers: what goes out comes back; what is foreign is refused by a sentence, never by a crash."""

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from makeway_runtime.cloudevents import EventHeaders, from_headers, to_headers
from makeway_runtime.errors import InvalidEvent

EVENT = EventHeaders(
    id="node-a/run-1/exited/3",
    type="makeway.facts.v1",
    source="makeway/executor/node-a",
    time=datetime(2026, 11, 29, 20, 0, tzinfo=UTC),
    subject="job é",
    correlation_id="c",
    causation_id="d",
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    extensions={"pool": "default"},
)


def test_what_goes_out_comes_back() -> None:
    assert from_headers(to_headers(EVENT)) == EVENT


def test_attributes_are_ce_headers_and_the_content_type_is_plain() -> None:
    headers = dict(to_headers(EVENT))
    assert headers["ce_specversion"] == b"1.0"
    assert headers["ce_id"] == EVENT.id.encode()
    assert headers["content-type"] == b"application/json"
    assert headers["traceparent"].startswith(b"00-")


def test_a_binary_header_of_ours_is_refused_by_name() -> None:
    headers = [*to_headers(EVENT), ("ce_subject", b"\xff\xfe")]
    with pytest.raises(InvalidEvent, match="ce_subject is not UTF-8"):
        from_headers(headers)


def test_a_foreign_binary_header_is_ignored() -> None:
    assert from_headers([*to_headers(EVENT), ("x-other", b"\xff\xfe"), ("x-none", None)]) == EVENT


@pytest.mark.parametrize("missing", ["id", "type", "source", "time", "specversion"])
def test_a_missing_attribute_is_named(missing: str) -> None:
    headers = [(name, value) for name, value in to_headers(EVENT) if name != f"ce_{missing}"]
    with pytest.raises(InvalidEvent, match=f"ce_{missing}"):
        from_headers(headers)


@pytest.mark.parametrize("time", ["yesterday", "2026-11-29T20:00:00", ""])
def test_a_time_without_sense_or_zone_is_refused(time: str) -> None:
    headers = {**dict(to_headers(EVENT)), "ce_time": time.encode()}
    with pytest.raises(InvalidEvent, match="ce_time"):
        from_headers(headers.items())


def test_an_endless_header_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="ce_id has 5000 bytes"):
        from_headers([*to_headers(EVENT), ("ce_id", b"x" * 5000)])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ce_id", "ce_type", "ce_source", "ce_time", "ce_specversion", "traceparent", "x"])
            | st.text(max_size=8),
            st.none() | st.binary(max_size=40),
        )
    )
)
def test_no_headers_make_it_crash(headers: list[tuple[str, bytes | None]]) -> None:
    with contextlib.suppress(InvalidEvent):
        from_headers(headers)
