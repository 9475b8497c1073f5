"""Events as Spark writes them into its event log, made by hand. Times are milliseconds since `EPOCH`."""

from __future__ import annotations

import json
from typing import Any

EPOCH = 1_767_225_600_000
"""2026-01-01T00:00Z in milliseconds since 1970."""

Event = dict[str, Any]


def log_start(version: str = "4.1.3") -> Event:
    return {"Event": "SparkListenerLogStart", "Spark Version": version}


def application_start(name: str = "wages", application: str = "app-1", at: int = 0) -> Event:
    identity = {"App Name": name, "App ID": application}
    return {"Event": "SparkListenerApplicationStart", **identity, "Timestamp": EPOCH + at, "User": "ada"}


def application_end(at: int) -> Event:
    return {"Event": "SparkListenerApplicationEnd", "Timestamp": EPOCH + at}


def profile_added(profile: int, cpus: float) -> Event:
    requests = {"cpus": {"Resource Name": "cpus", "Amount": cpus}}
    return {
        "Event": "SparkListenerResourceProfileAdded",
        "Resource Profile Id": profile,
        "Executor Resource Requests": {},
        "Task Resource Requests": requests,
    }


def executor_added(executor: str, at: int, cores: int = 2, host: str = "10.0.0.1") -> Event:
    info = {"Host": host, "Total Cores": cores, "Log Urls": {}, "Attributes": {}, "Resources": {}}
    return {
        "Event": "SparkListenerExecutorAdded",
        "Timestamp": EPOCH + at,
        "Executor ID": executor,
        "Executor Info": info,
    }


def executor_removed(executor: str, at: int, reason: str = "worker lost") -> Event:
    when = {"Timestamp": EPOCH + at, "Executor ID": executor}
    return {"Event": "SparkListenerExecutorRemoved", **when, "Removed Reason": reason}


def stage(
    stage: int, *, attempt: int = 0, submitted: int = 0, completed: int | None = None, tasks: int = 1, profile: int = 0
) -> Event:
    info = {
        "Stage ID": stage,
        "Stage Attempt ID": attempt,
        "Stage Name": f"collect at wages.py:{stage + 10}",
        "Number of Tasks": tasks,
        "RDD Info": [],
        "Submission Time": EPOCH + submitted,
        "Accumulables": [],
        "Resource Profile Id": profile,
    }
    if completed is not None:
        info["Completion Time"] = EPOCH + completed
    return {"Event": f"SparkListenerStage{'Submitted' if completed is None else 'Completed'}", "Stage Info": info}


def task_start(task: int, launch: int, *, executor: str = "1", stage: int = 0) -> Event:
    return {
        "Event": "SparkListenerTaskStart",
        "Stage ID": stage,
        "Stage Attempt ID": 0,
        "Task Info": _task_info(task, launch, None, executor),
    }


def task_end(
    task: int,
    launch: int,
    finish: int,
    *,
    executor: str = "1",
    stage: int = 0,
    reason: str = "Success",
    remote: int = 0,
    local: int = 0,
    written: int = 0,
    metrics: dict[str, Any] | None = None,
) -> Event:
    """One that Spark 3.5 could have written; ``metrics={}`` leaves them out, as for a task whose executor was lost."""
    if metrics is None:
        metrics = {
            "Executor Deserialize Time": 3,
            "Executor Run Time": finish - launch,
            "Executor CPU Time": 57_800_167,
            "Peak Execution Memory": 262_144,
            "Result Size": 2_293,
            "JVM GC Time": 1,
            "Result Serialization Time": 0,
            "Memory Bytes Spilled": 0,
            "Disk Bytes Spilled": 0,
            "Shuffle Read Metrics": {
                "Remote Blocks Fetched": 1,
                "Local Blocks Fetched": 1,
                "Fetch Wait Time": 2,
                "Remote Bytes Read": remote,
                "Remote Bytes Read To Disk": 0,
                "Local Bytes Read": local,
                "Total Records Read": 9,
            },
            "Shuffle Write Metrics": {
                "Shuffle Bytes Written": written,
                "Shuffle Write Time": 978_240,
                "Shuffle Records Written": 7,
            },
            "Input Metrics": {"Bytes Read": 11, "Records Read": 12},
            "Output Metrics": {"Bytes Written": 13, "Records Written": 14},
            "Updated Blocks": [],
        }
    # The values of accumulators are numbers or texts, in one list.
    accumulables = [{"ID": 1, "Name": "rows", "Update": "7", "Value": "7"}, {"ID": 2, "Update": 3, "Value": 3}]
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Stage Attempt ID": 0,
        "Task Type": "ShuffleMapTask",
        "Task End Reason": {"Reason": reason},
        "Task Info": {**_task_info(task, launch, finish, executor), "Accumulables": accumulables},
        **({"Task Metrics": metrics} if metrics else {}),
    }


def _task_info(task: int, launch: int, finish: int | None, executor: str) -> dict[str, Any]:
    return {
        "Task ID": task,
        "Index": task,
        "Attempt": 0,
        "Partition ID": task,
        "Launch Time": EPOCH + launch,
        "Executor ID": executor,
        "Host": "10.0.0.1",
        "Locality": "PROCESS_LOCAL",
        "Speculative": False,
        "Getting Result Time": 0,
        "Finish Time": 0 if finish is None else EPOCH + finish,
        "Failed": False,
        "Killed": False,
        "Accumulables": [],
    }


def text(*events: Event) -> bytes:
    """A log's text: a line an event, without spaces, as Spark writes it."""
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)


def wages(version: str = "4.1.3") -> list[Event]:
    r"""A whole small log: two executors of two cores, two stages, the last task of each on executor 1 runs long.

    time (s)         0    1    2    3    4    5    6    7    8
    executor 1  2 cores, 0.5 to 8
      task 0         .....|====|
      task 1         .....|==============|
      task 4         .........................|==============|
    executor 2  2 cores, 0.5 to 6
      task 2         .....|====|
      task 3         .........................|====|
    """
    return [
        log_start(version),
        profile_added(0, 1.0),
        application_start(),
        executor_added("1", 500),
        executor_added("2", 500, host="10.0.0.2"),
        stage(0, submitted=900, tasks=3),
        *(task_start(task, 1000, executor=executor) for task, executor in ((0, "1"), (1, "1"), (2, "2"))),
        task_end(0, 1000, 2000, written=100),
        task_end(2, 1000, 2000, executor="2", written=50),
        task_end(1, 1000, 4000, written=900),
        stage(0, submitted=900, completed=4000, tasks=3),
        stage(1, submitted=4900, tasks=2),
        task_start(3, 5000, executor="2", stage=1),
        task_start(4, 5000, stage=1),
        task_end(3, 5000, 6000, executor="2", stage=1, remote=100, local=50),
        executor_removed("2", 6000),
        task_end(4, 5000, 8000, stage=1, remote=0, local=900),
        stage(1, submitted=4900, completed=8000, tasks=2),
        application_end(8000),
    ]
