"""A job file: every mistake is refused with file, line, column and, for a name, the nearest one."""

import pytest
from makeway.errors import SpecInvalid
from makeway.spec.build import build, read_spec


def problems(text: str) -> list[str]:
    """What is wrong with a file, as printed."""
    with pytest.raises(SpecInvalid) as caught:
        build(read_spec(text, "job.yaml"), {}, "/work")
    return str(caught.value).splitlines()


def test_a_whole_file_becomes_the_job() -> None:
    text = """
name: train
class: high
command: [python, train.py, --seed, "7"]
env: {SEED: "7"}
gpus: 2
time_limit: 1h30m
preemption: {mode: CHECKPOINT, grace: 60s}
"""
    spec = build(read_spec(text, "job.yaml"), {}, "/work")
    assert spec.command == ("python", "train.py", "--seed", "7")
    assert (spec.class_, spec.gpus, spec.time_limit, spec.preemption.grace) == ("high", 2, 5400, 60)
    assert spec.working_dir == "/work"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("command: [x]\ngpu: 2\n", "job.yaml:2:1: gpu: unknown field; did you mean gpus?"),
        (
            "command: [x]\npreemption:\n  gracee: 5s\n",
            "job.yaml:3:3: preemption.gracee: unknown field; did you mean grace?",
        ),
        ("command: [x]\nqqqqqqq: 2\n", "job.yaml:2:1: qqqqqqq: unknown field; known are name, labels,"),
        ("command: [x]\n\ngpus: -1\n", "job.yaml:3:1: gpus: should be greater than or equal to 0 (given: -1)"),
        ("command: [x]\ngpus: 1.5\n", "job.yaml:2:1: gpus: must be a whole number (given: 1.5)"),
        ("command: [x]\ngpus: .nan\n", "job.yaml:2:1: gpus: must be a whole number (given: nan)"),
        (f"command: [x]\ngpus: {'9' * 50}\n", "job.yaml:2:1: gpus: should be less than or equal to 4096 (given: 999"),
        (f"command: [x]\ngpus: {'9' * 5000}\n", "job.yaml:2:1: gpus: should be less than or equal to 4096"),
        ("command: [x]\ngpus: 2..5000\n", "job.yaml:2:1: gpus: must be at most 4096 (given: 2..5000)"),
        ("command: [x]\ntime_limit: 1h1h\n", "job.yaml:2:1: time_limit: a duration has each of d, h, m, s and ms"),
        ("command: [x]\ntime_limit: soon\n", "job.yaml:2:1: time_limit: a duration is a number of seconds or a text"),
        ("command: [x, 5]\n", "job.yaml:1:14: command[1]: must be a text; put it in quotes (given: 5)"),
        ("command: [x]\nenv:\n  A: 1\n", "job.yaml:3:3: env.A: must be a text; put it in quotes (given: 1)"),
        ("command: x y\n", "job.yaml:1:1: command: must be a list of texts, such as [python, train.py]"),
        ("command: [x]\ngpus: 1\ngpus: 2\n", "job.yaml:3:1: gpus: given twice; first in line 2"),
        ("command: [x]\nenv: {A: a, A: b}\n", "job.yaml:2:13: env.A: given twice; first in line 2"),
        ("command: &c [x]\n", "job.yaml:1:10: anchors and aliases"),
        ("command: [x]\nname: a\0b\n", "job.yaml:2:8: the character U+0000 is no text"),
        ("command: [x]\nname: '\x7f'\n", "job.yaml:2:8: the character U+007F is no text"),
        ("command: !!python/name:os.system x\n", "job.yaml:1:10: tags (!) are not understood"),
        ("command: [x\n", "job.yaml:2:1: expected ',' or ']'"),
        ("- x\n", "job.yaml:1:1: a job file is a mapping"),
        ("", "job.yaml:1:1: a job file is a mapping"),
        ("command: [x]\n---\ncommand: [y]\n", "job.yaml:2:1: but found another document"),
        (
            "command: [x]\n\nvram_mib: 5\nmin_vram_mib: 6\n",
            "job.yaml:3:1: vram_mib asks for a share, min_vram_mib for whole cards: give one of them",
        ),
        ("name: x\nscript: y\ncommand: [z]\n", "job.yaml:3:1: exactly one of command and script must be given"),
        ("name: x\ncommand: ['']\n", "job.yaml:2:1: command: the program's name is empty"),
        (
            "command: [x]\ngroup:\n  name: g\n  max_down: 1\n  min_available: 1\n",
            "job.yaml:2:1: group: exactly one of min_available and max_down must be given",
        ),
        ("name: x\n", "job.yaml: exactly one of command and script must be given"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, problem: str) -> None:
    assert problems(text)[0].startswith(problem)


def test_all_mistakes_are_named_at_once() -> None:
    assert len(problems("command: [x]\ngpus: -1\nnam: y\ntime_limit: never\n")) == 3


def test_words_that_yaml_1_1_reads_as_something_else_are_texts() -> None:
    spec = build(read_spec("command: [x]\nname: no\nlabels: {a: on, b: 1:30}\n", "job.yaml"), {}, "/")
    assert (spec.name, spec.labels) == ("no", {"a": "on", "b": "1:30"})


def test_json_is_read_too_with_tabs_and_escaped_emoji() -> None:
    spec = build(read_spec('{\n\t"command": ["x"],\n\t"name": "\\ud83d\\ude80 r\\u00e9"\n}\n', "job.json"), {}, "/")
    assert spec.name == "🚀 ré"


def test_deep_nesting_is_refused_not_crashed_on() -> None:
    assert problems("a: " + "[" * 100_000)[0].startswith("job.yaml:")


@pytest.mark.parametrize("name", ["a" * 253, "训练-作业-1", "e\u0301", "é", "🚀", "a b", "../x", "job-1"])
def test_a_name_that_is_allowed_stays_as_it_is(name: str) -> None:
    assert build(None, {"name": name, "command": ("x",)}, "/").name == name


@pytest.mark.parametrize("name", ["a" * 254, "a" * 10_000, "a\nb", "a\x1b[31mb", "\u202eb", " a"])
def test_a_name_that_is_not_allowed_is_refused_with_the_limit(name: str) -> None:
    with pytest.raises(SpecInvalid, match="name: "):
        build(None, {"name": name, "command": ("x",)}, "/")
