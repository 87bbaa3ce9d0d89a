"""Whatever stands in a trace, it is read or refused with file, line and column: no other exception, and no hang."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from makeway_simulator.errors import TraceError
from makeway_simulator.readers.event_log import read_event_log
from makeway_simulator.readers.itp import read_itp
from makeway_simulator.readers.muri import read_muri
from makeway_simulator.readers.openb import read_nodes, read_orders, read_pods
from makeway_simulator.readers.sacct import read_sacct
from makeway_simulator.readers.swf import read_swf
from makeway_simulator.readers.table import Skipping

Read = Callable[[Path, Skipping], Any]

NODES, PODS, ORDERS = "openb_node_list_gpu_node.csv", "openb_pod_list_tiny.csv", "arrival_orders.jsonl"


def _orders(path: Path, skipping: Skipping) -> Any:
    return read_orders(path.parent, "tiny", 2, path)


SWF = ["1", "10", "5", "100", "4", "-1", "-1", "8", "200", "-1", "1", "3", "1", "1", "1", "1", "-1", "-1"]
READERS: dict[str, tuple[Read, str, str, list[str]]] = {
    "itp": (read_itp, ",", "job_id,submission_time,duration,num_gpu", ["a", "0", "10", "1"]),
    "muri": (
        read_muri, ",", "job_id,num_gpu,submit_time,iterations,model_name,iteration_time",
        ["7", "16", "2000", "100", "vgg16", "500"],
    ),
    "sacct": (
        read_sacct, "|", "JobID|Submit|Elapsed|AllocTRES|TimelimitRaw|Account",
        ["12", "2026-01-02T03:04:05", "1-00:00:10", "billing=8,gres/gpu=2", "60", "vision"],
    ),
    "swf": (read_swf, " ", "; a comment", SWF),
    "openb nodes": (
        lambda path, skipping: read_nodes(path.parent, skipping), ",", "sn,cpu_milli,memory_mib,gpu,model",
        ["n2", "8000", "1000", "2", "T4"],
    ),
    "openb pods": (
        lambda path, skipping: read_pods(path.parent, "tiny", skipping), ",",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", ["p2", "1", "1", "1", "500", "A10|T4"],
    ),
}  # fmt: skip
NAMES = {"openb nodes": NODES, "openb pods": PODS}

CELLS = [
    "", " ", "nan", "inf", "-inf", "NaN", "-5", "1e300", "-1e300", str(10**30), "1" + "0" * 5000, "1e999999999", "1_0",
    "٣", "٣" * 3, "0x10", "1.5", "a\x00b", "\x1b[31m", "\x85", '"', '"x', 'x"', '"x"y', "'", "x" * 200_000,
    '"' + "x" * 200_000 + '"', "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59", "99999999-00:00:00", "gres/gpu=x",
    "gres/gpu=٣", "gres/gpu=-1", "\u202e", "\ufeff",
]  # fmt: skip


def played(read: Read, path: Path) -> str | None:
    """What is said of a file; None if it was read. Anything but a trace's error goes through."""
    problem = refusal_of(read, path)
    if problem is None:
        return None
    assert problem.line > 0, str(problem)
    assert problem.column > 0, str(problem)
    assert len(str(problem)) < 500 + len(str(path))
    return str(problem)


def refusal_of(read: Read, path: Path) -> TraceError | None:
    try:
        read(path, Skipping())
    except TraceError as error:
        return error
    return None


def written(tmp_path: Path, kind: str, raw: bytes) -> Path:
    path = tmp_path / NAMES.get(kind, "trace")
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("kind", READERS)
def test_each_cell_is_read_or_refused_with_its_place(tmp_path: Path, kind: str) -> None:
    read, delimiter, header, cells = READERS[kind]
    assert played(read, written(tmp_path, kind, f"{header}\n{delimiter.join(cells)}\n".encode())) is None
    for at in range(len(cells)):
        for cell in CELLS:
            line = delimiter.join([*cells[:at], cell, *cells[at + 1 :]])
            problem = played(read, written(tmp_path, kind, f"{header}\n{line}\n".encode()))
            assert problem is None or ":2:" in problem
            if "\x00" in cell:
                assert problem is not None
                column = line.index("\x00") + 1
                assert f":2:{column}: holds the control character U+0000" in problem


NUMBERS = {
    "itp": [1, 2, 3], "muri": [1, 2, 3, 5], "sacct": [2, 4], "swf": [1, 3, 4, 8], "openb nodes": [1, 2, 3],
    "openb pods": [1, 2, 3, 4],
}  # fmt: skip


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("cell", ["1_0", "٣", "nan", "inf", "1e300", str(10**30), "0x10", "x" * 200_000])
def test_a_cell_that_is_no_number_of_ours_is_refused(tmp_path: Path, kind: str, cell: str) -> None:
    read, delimiter, header, cells = READERS[kind]
    for at in NUMBERS[kind]:
        line = delimiter.join([*cells[:at], cell, *cells[at + 1 :]])
        problem = played(read, written(tmp_path, kind, f"{header}\n{line}\n".encode()))
        column = len(delimiter.join(cells[:at])) + len(delimiter) + 1
        assert problem is not None
        assert f":2:{column}: " in problem


@pytest.mark.parametrize("kind", READERS)
def test_what_a_file_is_made_of_is_read_or_refused_with_its_place(tmp_path: Path, kind: str) -> None:
    read, delimiter, header, cells = READERS[kind]
    line = delimiter.join(cells)
    text = f"{header}\n{line}\n"
    good = [
        f"{header}\r\n{line}\r\n", f"{header}\r{line}\r", f"\ufeff{text}", f"{header}\n\n  \n{line}\n\n", text.rstrip(),
    ]  # fmt: skip
    for each in good:
        assert played(read, written(tmp_path, kind, each.encode())) is None
        assert played(read, written(tmp_path, kind, gzip.compress(each.encode()))) is None
    longer = gzip.compress(text.encode() + "".join(f"{number}\n" for number in range(10_000)).encode())
    for raw in (longer[:-500], longer[:15], longer[:200] + bytes(50) + longer[250:], longer[:-4] + b"abcd"):
        assert played(read, written(tmp_path, kind, raw)) is not None
    for raw in (text.encode("utf-16"), text.encode() + b"\xff\n", text.encode() + bytes(100), b"\x1f\x8b"):
        assert played(read, written(tmp_path, kind, raw)) is not None
    few, many = delimiter.join(cells[:-1]), delimiter.join([*cells, "1"])
    for broken in (few, many, f"x{delimiter}", "x" + delimiter * 50, "x"):
        problem = played(read, written(tmp_path, kind, f"{header}\n{broken}\n".encode()))
        assert problem is not None
        assert ":2:" in problem


def test_bytes_that_are_no_text_are_told_with_their_own_line_and_column(tmp_path: Path) -> None:
    read, _, header, _ = READERS["itp"]
    raw = f"{header}\na,0,10,1\nä,0,".encode() + b"\xff,1\n" + b"b,0,10,1\n"
    assert played(read, written(tmp_path, "itp", raw)) == f"{tmp_path}/trace:3:5: is no UTF-8 text"


def test_quotes_of_tables_are_taken_as_they_are_meant(tmp_path: Path) -> None:
    read, _, header, _ = READERS["itp"]
    text = f'{header}\n"a,""b""",0,10,1\nc"d,0,1"0,1\n'
    problem = played(read, written(tmp_path, "itp", text.encode()))
    assert problem is not None
    assert problem.endswith(":3:7: duration: '1\"0' is not a number")
    assert read(written(tmp_path, "itp", text.encode()), Skipping(allowed=True)).jobs[0].job_id == 'a,"b"'
    problem = played(read, written(tmp_path, "itp", f'{header}\na,0,10,"1\n'.encode()))
    assert problem is not None
    assert problem.endswith(":2:8: a quote has no end, or something stands behind it")
    # Slurm quotes nothing: a quote is a sign like any other.
    sacct, _, names, cells = READERS["sacct"]
    assert sacct(written(tmp_path, "sacct", f"{names}\n{'|'.join([*cells[:-1], chr(34)])}\n".encode()), Skipping()).jobs


EVENT = {"job_id": "j", "at": 1, "kind": "queued", "state": "QUEUED", "run": 1, "data": {}, "sequence": 1}
VALUES = [
    None, True, -1, 1.5, 10**30, -(10**30), 1e300, "", "x", "٣", "a\x00b", "\ud800", [], {}, [[]], {"a": 1}, 99_999,
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59", "x" * 200_000, "queued",
]  # fmt: skip


def test_each_value_of_an_event_is_read_or_refused_with_its_place(tmp_path: Path) -> None:
    asked = dict.fromkeys(
        ["gpus", "members", "class", "team", "priority", "time_limit_seconds", "submitted_at", "name"], 1
    )
    for name in [*EVENT, *(f"data.{each}" for each in asked)]:
        for value in VALUES:
            event = {**EVENT, "data": {}}
            outer, _, inner = name.partition(".")
            event[outer] = {inner: value} if inner else value
            problem = played(read_event_log, written(tmp_path, "log", json.dumps(event).encode()))
            assert problem is None or ":1:" in problem


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"run": "x"}, ':1:63: `run` "x" is no whole number within 0 to'),
        ({"run": True}, ":1:63: `run` true is no whole number"),
        ({"sequence": 1.5}, "`sequence` 1.5 is no whole number"),
        ({"state": "GONE"}, ':1:44: `state` "GONE" is no state of a job'),
        ({"state": []}, ":1:44: `state` [] is no state of a job"),
        ({"job_id": "a\x00b"}, ":1:2: `job_id` holds the control character U+0000"),
        ({"job_id": "\ud800"}, ":1:2: `job_id` holds the control character U+D800"),
        ({"data": {"team": "a\x1b"}}, "`team` holds the control character U+001B"),
        ({"data": {"priority": 99_999}}, "`data.priority` is no whole number within 0 to 10000"),
        ({"data": {"priority": -1}}, "`data.priority` is no whole number within 0 to 10000"),
        ({"at": "9999-12-31T23:59:59"}, "`at` is no time: it is beyond 1e+11 seconds from 1970"),
    ],
)
def test_an_event_that_none_of_ours_would_be_is_refused(tmp_path: Path, changes: dict[str, Any], place: str) -> None:
    problem = played(read_event_log, written(tmp_path, "log", json.dumps({**EVENT, **changes}).encode()))
    assert place in str(problem)


@pytest.mark.parametrize(
    "line",
    [
        *(
            json.dumps({"workload": "tiny", "seed": seed, "order": [0, 1]})
            for seed in (True, -1, 1e3, float("nan"), 10**30)
        ),
        *(
            json.dumps({"workload": "tiny", "seed": 1, "order": [0, index]})
            for index in (2, -1, 1.0, True, [], float("nan"))
        ),
        *(
            "[]",
            "1",
            '"x"',
            "null",
            "{",
            '{"workload": "tiny"}',
            '{"workload": "tiny", "seed": 1, "order": 5}',
            "[" * 9999,
        ),
    ],
)
def test_an_arrival_order_is_read_or_refused_with_its_place(tmp_path: Path, line: str) -> None:
    problem = played(_orders, written(tmp_path, "orders", line.encode()))
    assert problem is not None
    assert re.search(r":1:\d+: ", problem)
