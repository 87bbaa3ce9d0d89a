"""Traces are read from what their publishers hand out, and a broken line is told by file, line and column."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from makeway_simulator.errors import TraceError, UnknownChoice
from makeway_simulator.readers.event_log import read_event_log
from makeway_simulator.readers.itp import read_itp
from makeway_simulator.readers.muri import read_muri
from makeway_simulator.readers.openb import read_nodes, read_orders, read_pods
from makeway_simulator.readers.sacct import read_sacct
from makeway_simulator.readers.swf import read_swf
from makeway_simulator.readers.table import Skipping
from makeway_simulator.trace import Trace

MURI = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n"


def written(folder: Path, text: str, name: str = "trace") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_muri_job_is_iterations_times_their_time_and_a_measured_start(tmp_path: Path) -> None:
    trace = read_muri(written(tmp_path, MURI + "7,16,2000,100,vgg16,500\n3,1,1000,10,bert,100\n"), Skipping())
    late, early = trace.jobs[1], trace.jobs[0]
    assert (early.job_id, early.submitted_at, early.startup_seconds) == ("3", 1.0, 10)
    assert late.work_seconds == pytest.approx(100 * 0.5 * 1.015)
    assert (late.gpus, late.startup_seconds) == (16, 9)


def test_gzip_is_seen_by_its_content_not_its_name(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_bytes(gzip.compress(b"job_id,submission_time,duration,num_gpu\na,5,10,2\n"))
    assert read_itp(path, Skipping()).jobs[0].work_seconds == 10


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("7,x,2000,100,vgg16,500", ":2:3: num_gpu: 'x' is not a whole number"),
        ("7,0,2000,100,vgg16,500", ":2:3: num_gpu: 0 is not within"),
        ("7,1,-5,100,vgg16,500", ":2:5: submit_time: -5 is not a number of at least 0"),
        ("7,1,2000,nan,vgg16,500", ":2:10: iterations: nan is not a number"),
        ("7,1,2000,100,vgg16", ": 5 cells where 6 belong"),
        (",1,2000,100,vgg16,500", ":2:1: job_id: is empty"),
    ],
)
def test_a_broken_line_is_refused_with_line_and_column(tmp_path: Path, line: str, place: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_muri(written(tmp_path, MURI + line + "\n"), Skipping())
    assert place in str(caught.value)
    assert caught.value.line == 2


def test_broken_lines_are_skipped_and_counted_on_request(tmp_path: Path) -> None:
    skipping = Skipping(allowed=True)
    trace = read_muri(written(tmp_path, MURI + "x,y\n1,1,0,10,bert,100\nbad,1,?,1,a,1\n"), skipping)
    assert [job.job_id for job in trace.jobs] == ["1"]
    assert trace.skipped == 2


def test_columns_of_quoted_cells_are_those_of_the_text(tmp_path: Path) -> None:
    text = 'job_id,submission_time,duration,num_gpu\n"a,b",0,oops,1\n'
    with pytest.raises(TraceError) as caught:
        read_itp(written(tmp_path, text), Skipping())
    assert (caught.value.line, caught.value.column) == (2, 9)


def test_a_file_of_another_kind_says_what_its_header_lacks(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="the header lacks job_id"):
        read_muri(written(tmp_path, "policy,metric\n"), Skipping())
    with pytest.raises(TraceError, match="is empty"):
        read_muri(written(tmp_path, ""), Skipping())
    with pytest.raises(TraceError, match="cannot be read"):
        read_muri(tmp_path / "absent", Skipping())


def test_swf_takes_allocated_processors_and_leaves_out_what_never_ran(tmp_path: Path) -> None:
    ran = "1 10 5 100 4 -1 -1 8 200 -1 1 3 1 1 1 1 -1 -1"
    cancelled = "2 11 5 -1 -1 -1 -1 8 200 -1 5 3 1 1 1 1 -1 -1"
    trace = read_swf(written(tmp_path, f"; comment\n{ran}\n{cancelled}\n"), Skipping())
    (job,) = trace.jobs
    assert (job.gpus, job.work_seconds, job.time_limit_seconds, job.team) == (4, 100, 200, "user-3")
    with pytest.raises(TraceError, match=r":1:8: submit_time"):
        read_swf(written(tmp_path, ran.replace("1 10", "1      x"), "bad"), Skipping())


@pytest.mark.parametrize(
    ("read", "text", "place"),
    [
        (read_swf, "7 0 0 9 4 -1 -1 4 9 -1 1 1 1 1 1 1 -1 -1\n" * 2, "2:1: job_number: '7' is there before"),
        (read_itp, "job_id,submission_time,duration,num_gpu\na,0,9,1\na,5,9,1\n", "3:1: job_id: 'a' is there before"),
    ],
)
def test_a_job_that_comes_twice_is_refused(
    tmp_path: Path, read: Callable[[Path, Skipping], Trace], text: str, place: str
) -> None:
    with pytest.raises(TraceError, match=re.escape(place)):
        read(written(tmp_path, text), Skipping())
    skipping = Skipping(allowed=True)
    assert (len(read(written(tmp_path, text), skipping).jobs), skipping.skipped) == (1, 1)


def test_swf_leaves_out_the_parts_of_a_job_that_has_a_line_for_the_whole(tmp_path: Path) -> None:
    whole, part = (f"7 0 0 {seconds} 4 -1 -1 4 9 -1 {{}} 1 1 1 1 1 -1 -1\n" for seconds in (90, 30))
    trace = read_swf(written(tmp_path, whole.format(1) + part.format(2) + part.format(3)), Skipping())
    assert [(job.job_id, job.work_seconds) for job in trace.jobs] == [("7", 90.0)]


def test_sacct_takes_gpus_from_tres_and_leaves_out_steps(tmp_path: Path) -> None:
    text = (
        "JobID|Submit|Elapsed|AllocTRES|Timelimit|Account\n"
        "12|2026-01-02T03:04:05|1-00:00:10|billing=8,gres/gpu=2,mem=4G|2-00:00:00|vision\n"
        "12.batch|2026-01-02T03:04:05|1-00:00:10|gres/gpu=2||\n"
        "13|2026-01-02T03:04:15|00:10:00|cpu=1|UNLIMITED|vision\n"
        "14|2026-01-02T03:05:05|01:00|gres/gpu=1|UNLIMITED|speech\n"
    )
    first, second = read_sacct(written(tmp_path, text), Skipping()).jobs
    assert (first.gpus, first.work_seconds, first.time_limit_seconds, first.team) == (2, 86_410, 172_800, "vision")
    assert (second.submitted_at, second.work_seconds, second.time_limit_seconds) == (60, 60, None)


def event(kind: str, at: float | str, state: str = "RUNNING", run: int = 1, **data: object) -> str:
    return json.dumps({"job_id": "j1", "at": at, "kind": kind, "state": state, "run": run, "data": data})


def test_work_of_our_own_log_is_what_was_kept_of_each_run(tmp_path: Path) -> None:
    lines = [
        event("queued", 100, "QUEUED", gpus=2, members=2, **{"class": "high"}, team="vision"),
        event("started", 110),
        event("acked", 150),
        event("requeued", 160, "QUEUED"),
        event("started", 200, run=2),
        event("succeeded", 230, "SUCCEEDED", run=2),
    ]
    (job,) = read_event_log(written(tmp_path, "\n".join(reversed(lines))), Skipping()).jobs
    assert (job.gpus, job.class_name, job.team, job.work_seconds) == (4, "high", "vision", 40 + 30)


def test_a_run_whose_node_was_silent_has_started_once(tmp_path: Path) -> None:
    lines = [
        event("queued", "2026-01-01T00:00:05Z", "QUEUED", submitted_at="2026-01-01T00:00:00Z"),
        event("running", "2026-01-01T00:00:10Z"),
        event("unknown", "2026-01-01T00:00:20Z", "UNKNOWN"),
        event("running", "2026-01-01T00:00:30Z"),
        event("succeeded", "2026-01-01T00:00:40Z", "SUCCEEDED"),
        event("queued", "2026-01-01T00:00:00Z", "QUEUED").replace("j1", "j0"),
    ]
    (job,) = read_event_log(written(tmp_path, "\n".join(lines)), Skipping()).jobs
    assert (job.submitted_at, job.work_seconds) == (0, 30)


def test_a_job_without_gpus_is_left_out(tmp_path: Path) -> None:
    lines = [event("queued", 0, "QUEUED", gpus=0), event("running", 1), event("succeeded", 2, "SUCCEEDED")]
    assert read_event_log(written(tmp_path, "\n".join(lines)), Skipping()).jobs == ()


def test_a_broken_event_names_its_column(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read_event_log(written(tmp_path, '{"job_id": "a", oops}'), Skipping())
    assert (caught.value.line, caught.value.column) == (1, 17)
    with pytest.raises(TraceError, match=r"`data\.gpus` -1 is no count"):
        read_event_log(written(tmp_path, event("queued", 1, gpus=-1)), Skipping())
    with pytest.raises(TraceError, match="`submitted_at` 'soon' is no date and time"):
        read_event_log(written(tmp_path, event("queued", 1, submitted_at="soon")), Skipping())


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ('{"job_id":"a","at":NaN,"kind":"queued"}', ":1:20: NaN is no number"),
        ('{"job_id":"a","at":Infinity,"kind":"queued"}', ":1:20: Infinity is no number"),
        ('{"job_id":"a","kind":"queued","at":1e400}', ":1:31: `at` is no time"),
        ('{"job_id":"a","kind":"queued","at":1' + "0" * 400 + "}", ":1:31: `at` is no time"),
        ('{"job_id":"a","kind":"queued","at":1' + "0" * 5000 + "}", ":1:1: is no JSON that can be read"),
        ('{"job_id":"a","kind":"queued","at":1,"data":{"submitted_at":NaN}}', ":1:61: NaN is no number"),
        ('{"job_id":"a","kind":"queued","at":1,"data":{"time_limit_seconds":-5}}', ":1:46: `data.time_limit_seconds`"),
        ('{"job_id":"a","kind":"queued","at":1,"data":{"time_limit_seconds":1e400}}', ":1:46: `data.time_limit"),
        ('{"job_id":"a","kind":"queued","at":1,"data":{"priority":1' + "0" * 20 + "}}", ":1:46: `data.priority`"),
        ('{"job_id":"a","kind":"queued","at":1,"data":{"gpus":99999,"members":99999}}', ":1:46: `data.gpus`"),
        ("[" * 100_000, ":1:1: is no JSON that can be read"),
    ],
)
def test_an_event_whose_number_is_none_is_refused_with_its_place(tmp_path: Path, line: str, place: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_event_log(written(tmp_path, line), Skipping())
    assert place in str(caught.value)


HUGE = "1" + "0" * 30


def test_numbers_beyond_all_bounds_are_refused_by_every_reader(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r":2:7: iterations: with their time"):
        read_muri(written(tmp_path, MURI + "1,1,0,1e10,bert,1e10\n"), Skipping())
    with pytest.raises(TraceError, match=r":2:3: num_gpu"):
        read_muri(written(tmp_path, MURI + "1,1000001,0,1,bert,1\n"), Skipping())
    itp = "job_id,submission_time,duration,num_gpu\n"
    with pytest.raises(TraceError, match=r":2:3: submission_time: 1e300 is not a number of at most"):
        read_itp(written(tmp_path, itp + "a,1e300,1,1\n"), Skipping())
    with pytest.raises(TraceError, match=r":1:9: allocated_processors"):
        read_swf(written(tmp_path, f"1 0 0 1 {HUGE}" + " 1" * 13), Skipping())
    sacct = "JobID|Submit|Elapsed|AllocTRES\n"
    for row, column in ((f"1|{HUGE}|01:00|gres/gpu=1", 3), (f"1|0|{HUGE}:00|gres/gpu=1", 5)):
        with pytest.raises(TraceError, match=rf":2:{column}: "):
            read_sacct(written(tmp_path, sacct + row), Skipping())
    with pytest.raises(TraceError, match=r":2:11: AllocTRES"):
        read_sacct(written(tmp_path, f"{sacct}1|0|01:00|gres/gpu={HUGE}"), Skipping())


def openb(folder: Path) -> Path:
    written(folder, "sn,cpu_milli,memory_mib,gpu,model\nn2,8000,1000,2,T4\n", "openb_node_list_gpu_node.csv")
    pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np2,1,1,1,500,A10|T4\np1,1,1,0,0,\n"
    written(folder, pods, "openb_pod_list_tiny.csv")
    orders = [{"workload": "openb_pod_list_tiny", "seed": seed, "order": [1, 0, 1]} for seed in (43, 42)]
    written(folder, "\n".join(map(json.dumps, orders)), "arrival_orders.jsonl")
    return folder


def test_openb_pods_are_sorted_by_name_and_orders_by_seed(tmp_path: Path) -> None:
    folder = openb(tmp_path)
    pods = read_pods(folder, "tiny", Skipping())
    assert [pod.gpus for pod in pods] == [0, 1]
    assert pods[1].models == {"A10", "T4"}
    assert [order.seed for order in read_orders(folder, "tiny", len(pods))] == [42, 43]
    assert read_nodes(folder, Skipping())[0].gpus == 2


def test_an_unknown_workload_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UnknownChoice, match="there is tiny"):
        read_pods(openb(tmp_path), "huge", Skipping())


def test_an_order_beyond_the_pods_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="1 is no index of 1 pod"):
        read_orders(openb(tmp_path), "tiny", 1)
