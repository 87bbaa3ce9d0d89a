"""A policy file: a good one means what it says, every mistake is refused with file, line, column and a name."""

import re
from pathlib import Path

import pytest
from makeway.errors import SpecInvalid
from makeway.policy_file import load_policy, read_policy
from makeway_policy.model import Mode
from makeway_policy.presets import PLAIN, PRESETS
from makeway_policy.rules import MayPreempt, Order
from makeway_schemas.policy_file import PolicyClass, PolicyFile, VictimWeights
from pydantic import BaseModel

TWO_CLASSES = "classes:\n  batch:\n    value: 250\n    own_value_min: 210\n    own_value_max: 250\n"


def problems(text: str) -> list[str]:
    """What is wrong with a file, as printed."""
    with pytest.raises(SpecInvalid) as caught:
        read_policy(text, "policy.yaml")
    return str(caught.value).splitlines()


def test_what_a_file_says_holds_and_the_preset_holds_elsewhere() -> None:
    text = """
preset: plain
delta: 5
order: fair
classes:
  high: {grace: 45s, mode: CANCEL, may_preempt: once_aged}
  urgent: {sla_wait: null}
"""
    policy = read_policy(text, "policy.yaml").policy
    high = policy.classes["high"]
    assert (policy.delta, policy.order, policy.max_shares) == (5, Order.FAIR, PLAIN.max_shares)
    assert (high.grace_seconds, high.mode, high.may_preempt) == (45.0, Mode.CANCEL, MayPreempt.ONCE_AGED)
    assert (high.value, high.minimum_run_seconds) == (800, 0.0)
    assert policy.classes["urgent"].sla_wait_seconds is None


def test_an_added_class_is_as_normal_in_what_it_does_not_name() -> None:
    text = """
classes:
  normal: {grace: 7s}
  batch: {value: 130, own_value_min: 100, own_value_max: 150, minimum_run: 1m}
  low: {own_value_max: 80, value: 40}
"""
    batch = read_policy(text, "policy.yaml").policy.classes["batch"]
    assert (batch.value, batch.minimum_run_seconds, batch.grace_seconds) == (130, 60.0, 7.0)
    assert (batch.mode, batch.preemptions_per_day, batch.alias) == (Mode.CHECKPOINT, 4, None)


def test_null_takes_a_class_of_the_preset_away() -> None:
    assert set(read_policy("classes: {low: null, high: ~}\n", "policy.yaml").policy.classes) == {"urgent", "normal"}


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_a_policy_by_its_name(name: str) -> None:
    given = load_policy(name)
    assert (given.policy, given.document) == (PRESETS[name], {"preset": name})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("delta: 10\ndelta: 11\n", "policy.yaml:2:1: delta: given twice; first in line 1"),
        ("detla: 10\n", "policy.yaml:1:1: detla: unknown field; did you mean delta?"),
        (
            "classes:\n  high:\n    graze: 5s\n",
            "policy.yaml:3:5: classes.high.graze: unknown field; did you mean grace?",
        ),
        ("classes: {high: 3}\n", "policy.yaml:1:11: classes.high: must be a mapping of fields (given: 3)"),
        ("preset: simple\n", "policy.yaml:1:1: preset: should be 'default', 'plain', 'fifo' or 'round-robin' (given"),
        ("delta: 0\n", "policy.yaml:1:1: delta: should be greater than or equal to 1 (given: 0)"),
        (
            "infrastructure_failures_max: 1001\n",
            "policy.yaml:1:1: infrastructure_failures_max: should be less than or equal to 1000 (given: 1001)",
        ),
        ("delta: 1.5\n", "policy.yaml:1:1: delta: must be a whole number (given: 1.5)"),
        ("hold_expiry: 0s\n", "policy.yaml:1:1: hold_expiry: should be greater than or equal to 0.001 (given: 0s)"),
        (
            "classes:\n  normal: {sla_wait: 1e-2}\n",
            "policy.yaml:2:12: classes.normal.sla_wait: with aging_step and aging_points a step of aging takes 0.00033",
        ),
        ("hold_expiry: soon\n", "policy.yaml:1:1: hold_expiry: a duration is a number of seconds or a text"),
        ("hold_expiry: 400d\n", "policy.yaml:1:1: hold_expiry: should be less than or equal to 31622400 (given: 400d)"),
        ("progress_weight: .nan\n", "policy.yaml:1:1: progress_weight: should be a finite number (given: nan)"),
        ("progress_weight: much\n", "policy.yaml:1:1: progress_weight: must be a number (given: much)"),
        ("preemption: yes\n", "policy.yaml:1:1: preemption: must be true or false (given: yes)"),
        ("classes:\n  low:\n    value: -1\n", "policy.yaml:3:5: classes.low.value: should be greater than or equal"),
        ("classes:\n  'a b': {}\n", "policy.yaml:2:3: classes.a b: is no name: must be of letters, digits"),
        ("default_class: huge\n", "policy.yaml:1:1: default_class: there is no class huge"),
        ("\nclasses: {normal: null}\n", "policy.yaml:2:11: default_class: there is no class normal"),
        (TWO_CLASSES, "policy.yaml:4:5: classes.batch.own_value_min: less than 20 above class low"),
        ("delta: 11\n", "policy.yaml:1:1: classes.normal.own_value_min: less than 22 above class low"),
        (
            "classes:\n  low: {own_value_max: 290}\n",
            "policy.yaml:2:3: classes.normal.own_value_min: less than 20 above",
        ),
        ("classes:\n  low: {alias: P1}\n", "policy.yaml:2:9: classes.low.alias: P1 means class high already"),
        ("classes:\n  low: {value: 290}\n", "policy.yaml:2:9: classes.low.value: 290 is outside its own values"),
        ("classes:\n  low: {grace: 11m}\n", "policy.yaml:2:9: classes.low.grace: longer than its grace_max, 600 s"),
        ("- delta\n", "policy.yaml:1:1: a policy file is a mapping of fields"),
        ("", "policy.yaml:1:1: a policy file is a mapping of fields"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, problem: str) -> None:
    assert problems(text)[0].startswith(problem)


def durations_of(model: type[BaseModel]) -> list[tuple[str, bool]]:
    """Each field of a model that is a duration, and whether it may be 0."""
    fields = model.model_json_schema()["properties"].items()
    numbers = [(name, [*field.get("anyOf", [field])]) for name, field in fields if "h)?" in str(field)]
    return [(name, any(each.get("const") == 0 for each in forms)) for name, forms in numbers]


DURATIONS = [
    *(("{}: {}\n", name, may_be_0) for name, may_be_0 in durations_of(PolicyFile) if name != "classes"),
    *(("classes:\n  normal:\n    {}: {}\n", name, may_be_0) for name, may_be_0 in durations_of(PolicyClass)),
]


@pytest.mark.parametrize(("form", "name", "may_be_0"), DURATIONS, ids=[each[1] for each in DURATIONS])
@pytest.mark.parametrize("value", ["1e-300", "1e-16", "0.0009", "0.5ms", "1e300", "1e18", "400d", "-5s", ".inf", "inf"])
def test_a_duration_that_no_clock_tells_is_refused_with_its_bound(
    form: str, name: str, may_be_0: bool, value: str
) -> None:
    (problem,) = problems(form.format(name, value))
    below = "should be 0, or greater than or equal to 0.001" if may_be_0 else "should be greater than or equal to 0.001"
    assert f"{name}: " in problem
    if value in ("1e-300", "1e-16", "0.0009", "0.5ms"):
        assert below in problem
    elif value == "-5s":
        assert "should be greater than or equal to 0" in problem
    else:
        assert "should be less than or equal to 31622400" in problem


def test_all_mistakes_are_named_at_once() -> None:
    assert len(problems("delta: 0\naging_step: 0\nbackfill: never\n")) == 3


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(SpecInvalid, match=r"nosuch\.yaml: cannot be read: No such file"):
        load_policy(f"{tmp_path}/nosuch.yaml")


REPOSITORY = Path(__file__).parents[3]
MANUAL = (REPOSITORY / "docs" / "policy.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((REPOSITORY / "examples" / "policies").iterdir()), ids=lambda path: path.name)
def test_the_examples_are_in_order(path: Path) -> None:
    assert load_policy(str(path)).document


def test_the_files_in_the_manual_are_in_order() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", MANUAL, re.DOTALL)
    assert blocks
    for block in blocks:
        read_policy(block, "docs/policy.md")


def test_the_manual_describes_every_field_as_the_schema_does() -> None:
    for model, outer in ((PolicyFile, ""), (PolicyClass, ""), (VictimWeights, "victim_weights.")):
        for name, info in model.model_fields.items():
            if name != "victim_weights":
                assert f"| `{outer}{name}` | " in MANUAL
                assert f" | {info.description} |" in MANUAL
