"""Whatever a policy file may say: it means one policy, its problems can be told, and its whole text means the same."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from makeway.documents.reader import parse
from makeway.policy_text import policy_lines
from makeway_policy.checks import problems
from makeway_policy.document import completed, flattened, from_document, name_in_document, sources, to_document
from makeway_policy.presets import PRESETS
from makeway_schemas.policy_file import PolicyFile

DURATIONS = st.floats(0.001, 1e6, allow_nan=False).map(lambda seconds: round(seconds, 3))
VALUES = st.integers(0, 10_000)
CARDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=8)
NAMES = st.sampled_from(["urgent", "high", "normal", "low", "batch", "null", "1e3", "on"])


def some_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping with any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


CLASSES = some_of(
    alias=NAMES | st.none(),
    value=VALUES,
    own_value_min=VALUES,
    own_value_max=VALUES,
    may_preempt=st.sampled_from(["yes", "once_aged", "never"]),
    mode=st.sampled_from(["OFF", "CANCEL", "REQUEUE", "CHECKPOINT"]),
    grace=DURATIONS,
    grace_max=DURATIONS | st.none(),
    minimum_run=DURATIONS,
    cool_down=DURATIONS | st.none(),
    overrides_minimum_run=st.booleans(),
    preemptions_per_day=VALUES | st.none(),
    sla_wait=DURATIONS | st.none(),
    placement=st.sampled_from(["binpack", "spread", "frag"]),
    needs_allowance=st.booleans(),
)
DOCUMENTS = some_of(
    preset=st.sampled_from(sorted(PRESETS)),
    name=st.sampled_from(["lab", "on", "1.5", "a b"]),
    classes=st.dictionaries(NAMES, CLASSES | st.none(), max_size=4),
    default_class=NAMES,
    delta=st.integers(1, 100),
    aging_points=st.floats(0, 1e4),
    order=st.sampled_from(["submit", "fair"]),
    preemption=st.booleans(),
    victims=st.sampled_from(["priority-first", "cost-first", "weighted"]),
    victim_weights=some_of(v=st.floats(0, 1e6), cost=st.floats(0, 1e6)),
    backfill=st.sampled_from(["strict", "off", "preemptible"]),
    hold_expiry=DURATIONS,
    empty_seconds=DURATIONS,
    usage_half_life=DURATIONS | st.none(),
    gpu_aliases=st.dictionaries(CARDS, st.lists(CARDS), max_size=2),
    max_shares=st.integers(1, 1024),
)


@settings(deadline=None)
@given(DOCUMENTS)
def test_a_document_and_its_whole_mean_the_same_policy(values: dict[str, Any]) -> None:
    document = PolicyFile.model_validate(values).document()
    policy = from_document(document)
    whole = completed(json.loads(json.dumps(document)))
    assert PolicyFile.model_validate(whole).document() == whole
    assert from_document(whole) == policy
    assert set(sources(document)) == set(flattened(to_document(policy)))


@settings(deadline=None)
@given(DOCUMENTS)
def test_every_problem_names_a_value_of_the_policy(values: dict[str, Any]) -> None:
    policy = from_document(PolicyFile.model_validate(values).document())
    paths = set(flattened(to_document(policy)))
    for sentence in problems(policy):
        assert name_in_document(sentence.partition(": ")[0]) in paths


@settings(deadline=None)
@given(DOCUMENTS)
def test_the_printed_text_is_read_back(values: dict[str, Any]) -> None:
    whole = completed(PolicyFile.model_validate(values).document())
    read = parse("\n".join(policy_lines(whole, sources(whole))), "printed", "a policy file")
    assert PolicyFile.model_validate(read.values).document() == whole
