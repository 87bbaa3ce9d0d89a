"""Compare, tune and demo: what they search, what they show, and that the page cannot be broken by a name."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from makeway_policy.checks import problems
from makeway_policy.document import from_document
from makeway_policy.model import Mode
from makeway_policy.presets import DEFAULT, FIFO, PLAIN
from makeway_simulator import demo
from makeway_simulator.comparison import Comparison, compare_policies
from makeway_simulator.demo_page import demo_page, told
from makeway_simulator.engine import Engine
from makeway_simulator.errors import BadValue, SimulatorError, UnknownChoice
from makeway_simulator.objective import Terms, Weights
from makeway_simulator.outcome import EndKind, waits_by_class
from makeway_simulator.physics import Physics
from makeway_simulator.pictures import largest, span, thinned
from makeway_simulator.record import Segment
from makeway_simulator.report import Shown, replays_page, script_data
from makeway_simulator.rivals.loop import Charge
from makeway_simulator.rivals.study import study
from makeway_simulator.setting import Setting
from makeway_simulator.trace import Cluster, TraceJob
from makeway_simulator.tune import Search, document_with, parse_fixed, tune
from makeway_simulator.workload import Mix, make

CLUSTER = Cluster(nodes=1, gpus_per_node=4)


def test_the_strategies_rank_as_expected() -> None:
    rows = {row.strategy: row for row in demo.table(demo.Choice())}
    assert rows["no preemption"].mean_wait_seconds > 100 > rows["CHECKPOINT, graceful"].longest_wait_seconds
    assert rows["CHECKPOINT, graceful"].lost_gpu_seconds < rows["CHECKPOINT, grace 0"].lost_gpu_seconds
    assert rows["CHECKPOINT, grace 0"].lost_gpu_seconds < rows["REQUEUE, grace 0"].lost_gpu_seconds
    assert rows["CANCEL, grace 0"].cancelled > 0 == rows["REQUEUE, grace 0"].cancelled


def test_a_delta_beyond_the_distance_of_classes_evicts_less() -> None:
    near, far = (demo.row("", demo.run_one(demo.Choice(delta=delta)).record) for delta in (10, 900))
    assert far.preemptions < near.preemptions


def test_what_happens_is_told_in_order() -> None:
    events = told(demo.run_one(demo.Choice()).record)
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    kinds = {event["kind"] for event in events}
    assert {"arrival", "eviction", "checkpoint", "resume", "finish"} <= kinds


def test_the_demo_page_is_whole_and_reaches_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makeway_simulator.demo_page.runs", lambda choice: [demo.run_one(choice)])
    text = demo_page(demo.Choice())
    assert "<td>0 s</td>" not in text
    assert "<td>never</td>" in text
    assert not re.search(r"""(src|href)\s*=|url\(|@import|fetch\(|XMLHttpRequest""", text)
    data = re.search(r"const DATA=(\{.*?\});\s*//", text, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["runs"][0]["mode"] == Mode.CHECKPOINT.value


class Elements(HTMLParser):
    """The names of all elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)


def test_a_hostile_name_stays_text_in_a_report() -> None:
    bad = '"><img src=x onerror=alert(1)>'
    job = TraceJob(job_id=bad, submitted_at=0, gpus=1, work_seconds=5, class_name="normal")
    record = Engine([job], Setting(cluster=CLUSTER, policy=PLAIN)).run()
    figures = {"policy": bad, "nodes": bad, "waits": waits_by_class(record.outcomes)}
    page = replays_page(bad, [Shown(name=bad, figures=figures, record=record)])
    elements = Elements()
    elements.feed(page)
    assert "img" not in elements.seen
    assert {"svg", "rect", "table"} <= elements.seen
    assert "</script" not in script_data(["</script><script>"])


def test_long_lists_are_thinned_evenly_and_keep_their_ends() -> None:
    assert thinned(range(1000), 4) == [0, 333, 666, 999]
    assert thinned([1, 2], 4) == [1, 2]


def test_the_largest_runs_are_drawn_in_their_order() -> None:
    def segment(name: str, seconds: float, gpus: int) -> Segment:
        return Segment(
            job_id=name, run=1, gpus=("g",) * gpus, started_at=0, ready_at=0, ended_at=seconds, kind=EndKind.FINISHED
        )

    segments = [segment("long", 50, 1), segment("short", 1, 1), segment("wide", 20, 4)]
    assert [each.job_id for each in largest(segments, 2)] == ["long", "wide"]


def test_times_are_told_for_reading() -> None:
    assert [span(seconds) for seconds in (0, 0.04561, 90, 600, 3_600, 86_400 * 3.25)] == [
        "0 s", "0.0456 s", "90 s", "10 min", "1 h", "3.2 d",
    ]  # fmt: skip


def test_replays_stand_side_by_side_with_their_pictures() -> None:
    trace = make(Mix(jobs=30, load=1.5, median_seconds=100), CLUSTER)
    rules = Engine(trace.jobs, Setting(cluster=CLUSTER, policy=DEFAULT)).run()
    rival = study(trace, CLUSTER, "srtf", Charge())
    shown = [
        Shown(name=name, figures={"preemptions": 3, "gpu_goodput": 0.5, "waits": {}}, record=record)
        for name, record in (("makeway", rules), ("srtf", rival))
    ]
    text = replays_page("both", shown)
    assert "<tr><th>GPU-seconds that brought jobs on</th><td>50.0 %</td><td>50.0 %</td></tr>" in text
    for name in ("makeway", "srtf"):
        assert f"<h2>{name}: who ran where</h2>" in text
    assert text.count("<svg") == 2 * 6


def test_placements_are_drawn_over_the_load() -> None:
    points = {"80": {"mean": 79.5, "sd": 0.1}, "130": {"mean": 95.0, "sd": 0.2}}
    text = replays_page("openb", [Shown(name=name, figures={"allocated_percent": points}) for name in ("fgd", "<b>")])
    assert "<td>95.00 ±0.20</td>" in text
    assert text.count("<polyline") == 2
    assert "<b>" not in text


def test_policies_are_compared_on_the_same_workload() -> None:
    trace = make(Mix(jobs=60, load=1.2, median_seconds=100), CLUSTER)
    policies = (("default", DEFAULT), ("srtf", None))
    found = {
        each.name: each
        for each in compare_policies(Comparison(trace=trace, cluster=CLUSTER, physics=Physics(), policies=policies))
    }
    assert found["jobs"].first == found["jobs"].second == 60
    assert found["average_jct_seconds"].second < found["average_jct_seconds"].first
    assert "p95_wait_seconds.urgent" in found


def test_a_made_up_workload_is_the_same_every_time_and_asks_for_its_load() -> None:
    mix = Mix(jobs=2000, load=0.5)
    trace = make(mix, CLUSTER)
    assert trace == make(mix, CLUSTER)
    asked = sum(job.gpus * job.work_seconds for job in trace.jobs)
    assert asked / (trace.jobs[-1].submitted_at * CLUSTER.gpus) == pytest.approx(0.5, rel=0.1)


def test_the_objective_weighs_terms_and_the_front_keeps_what_is_not_beaten() -> None:
    good, worse, other = (
        Terms(utilisation=0.8, wait=0.5, preemptions=0.1),
        Terms(utilisation=0.8, wait=0.6, preemptions=0.1),
        Terms(utilisation=0.7, wait=0.1, preemptions=0.1),
    )
    assert good.weighed(Weights(alpha=1, beta=0.5, gamma=1)) == pytest.approx(0.8 - 0.25 - 0.1)
    assert good.beats(worse)
    assert not good.beats(other)
    assert not good.beats(good)


def test_tuning_honours_fixed_values_and_is_never_worse_than_the_start() -> None:
    trace = make(Mix(jobs=25, load=1.0, median_seconds=100), CLUSTER)
    search = Search(
        trace=trace, cluster=CLUSTER, document={"preset": "default"}, physics=Physics(), fixed={"delta": 7}, trials=3
    )
    found = tune(search)
    assert found.front[0].objective >= found.start.objective
    assert all(each.document["delta"] == 7 for each in found.front)
    assert found == tune(search)
    assert from_document(found.front[0].document).delta == 7


def test_a_value_that_is_not_searched_cannot_be_fixed() -> None:
    search = Search(trace=make(Mix(jobs=1), CLUSTER), cluster=CLUSTER, document={}, physics=Physics())
    with pytest.raises(UnknownChoice, match="there is delta"):
        tune(replace(search, fixed={"colour": 1.0}))
    with pytest.raises(BadValue, match="name=number"):
        parse_fixed(["delta"])
    with pytest.raises(SimulatorError, match=r"delta is fixed twice, to 5 and by delta=6"):
        parse_fixed(["delta=5", "progress_weight=1", "delta=6"])


def test_searched_paths_set_values_of_a_policy_file() -> None:
    document = document_with({"preset": "default"}, {"delta": 5, "classes.low.sla_wait": 60.0, "victim_weights.v": 2.0})
    policy = from_document(document)
    assert (policy.delta, policy.classes["low"].sla_wait_seconds, policy.victims.value) == (5, 60, "weighted")
    assert FIFO.delta != 5


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_only_settings_that_a_policy_file_can_have_are_tried(seed: int) -> None:
    trace = make(Mix(jobs=5, median_seconds=100), CLUSTER)
    search = Search(
        trace=trace, cluster=CLUSTER, document={"preset": "default"}, physics=Physics(), trials=4, seed=seed
    )
    found = tune(search)
    assert found.tried == 5
    assert [problems(from_document(each.document)) for each in found.front] == [()] * len(found.front)


def test_values_that_make_no_policy_cannot_be_fixed() -> None:
    search = Search(
        trace=make(Mix(jobs=1), CLUSTER), cluster=CLUSTER, document={}, physics=Physics(), fixed={"delta": 30}
    )
    with pytest.raises(SimulatorError, match="less than 60 above class low"):
        tune(search)
