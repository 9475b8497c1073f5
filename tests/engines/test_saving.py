"""A query saved to a folder goes on from there as if nothing had happened, wherever it was killed."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import gpu_ops as g
from gpu_ops.checkpoints import saved_states
from gpu_ops.checkpoints.cache import Cache
from gpu_ops.checkpoints.manifests import Manifests, TakenError, manifest_name, prefix
from gpu_ops.checkpoints.saved_states import SavedState
from gpu_ops.core.bounds import TRUSTLESS
from gpu_ops.core.state_parts import doubtful
from gpu_ops.engines.live import restoring
from gpu_ops.engines.live.restored import Start, restored_state
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.engines.live.saving import save_state
from gpu_ops.errors import DefectError, GpuOpsError, PlanError, SourceError
from gpu_ops.microbatches.folders import LocalFolder
from gpu_ops.operators.state import changing_runs
from tests.support.damage import QUERIES, at_rest, events, go_on, shaped
from tests.support.disk import Disk, PowerCut, Process
from tests.support.faults import Fault
from tests.support.ticks import at_us

DAY = 86_400_000_000
SAMPLED = ("extremes", "values", "clipped", "filled", "totals in cycles", "each alive", "edges, whole and open")
WHOLE = [name for name in QUERIES if not name.startswith("edges")]
KILLED = (("sums", "cpu"), ("outer join", "array"))
CALLS = ("create", "write", "fsync file", "fsync folder", "rename", "unlink", "mkdir", "read", "list", "open")


@pytest.mark.parametrize(
    "name", [name if name in SAMPLED else pytest.param(name, marks=pytest.mark.deep) for name in QUERIES]
)
def test_every_query_goes_on_as_one_that_was_not_stopped(tmp_path: Path, name: str) -> None:
    query = QUERIES[name]()
    folder = tmp_path / "a folder"
    live = at_rest(query)
    assert [live.save(folder), live.save(folder)] == [1, 2]
    again = g.restore(folder, query, device="cpu")
    assert again.state() == live.state()
    assert again.save(folder) == 3
    assert g.restore(folder, query, device="array", number=2).state() == live.state()
    go_on(again)
    again.save(folder)
    go_on(live)
    assert again.state() == live.state()
    assert g.restore(folder, query, device="cpu").closed


def _feed(live: RunningQuery, chance: random.Random) -> None:
    """Push what comes next of each input, up to the end: how many rows it had tells where it is."""
    for number, name in enumerate(live.input_ctis()):
        rows = events(number, 0, 9, 60)
        at = live.state_facts()["rows_in"][number]
        upto = min(at + chance.randrange(1, 25), 60)
        live.push(rows.slice(at, upto - at), input=name)
        live.advance(at_us(rows["at"][upto].as_py() * 1_000_000 if upto < 60 else 10 * DAY), input=name)
    if min(live.input_ctis().values()) == 10 * DAY:
        live.close()


def _run(live: RunningQuery, chance: random.Random, folder: Path) -> None:
    while not live.closed:
        _feed(live, chance)
        live.save(folder, keep=chance.choice([1, 2, 3]))


def _killed(query: g.Stream, seed: int, device: str) -> pa.Table:
    chance = random.Random(seed)
    disk = Disk(chance)
    with disk.mounted():
        folder = disk.folder("all saves") / "a folder"
        after = chance.randrange(40)
        for turn in range(100):
            what = chance.choice(["kill", "power cut"]) if turn < 8 else ""
            faults = [Fault(what, CALLS, after, done=chance.random() < 0.5)] if what else []
            after = chance.randrange(60)
            with suppress(PowerCut), disk.process(process := Process("query", faults)):
                # Killed before its first checkpoint, it is started again.
                made = Manifests(LocalFolder(folder)).numbers()
                live = g.restore(folder, query, device=device) if made else query.start(device=device)
                _run(live, chance, folder)
            if process.end is PowerCut and process.dead:
                disk.power_cut()
            if not process.dead:
                return live.results()
    raise AssertionError


@pytest.mark.parametrize(("name", "device"), KILLED)
@pytest.mark.parametrize(
    "seeds", [range(1), *(pytest.param(range(at, at + 50), marks=pytest.mark.deep) for at in range(1, 1001, 50))]
)
def test_kills_between_any_two_calls_of_the_system_change_nothing(name: str, device: str, seeds: range) -> None:
    for seed in seeds:
        _check_killed(name, device, seed)


def _check_killed(name: str, device: str, seed: int) -> None:
    query = QUERIES[name]()
    live, chance = query.start(device=device), random.Random(seed)
    while not live.closed:
        _feed(live, chance)
    assert _in_order(_killed(query, seed, device)) == _in_order(live.results())


def _in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(each.name, "ascending") for each in table.schema])


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pa.float64(), [-2.5, -1e300, -float("inf"), 0.0, -0.001, 3.5]),
        (pa.int64(), [-(1 << 63), -(1 << 62) - 1, -1, 5]),
    ],
)
def test_orders_of_values_less_than_any_time_go_on(
    tmp_path: Path, device: str, dtype: pa.DataType, values: list[float]
) -> None:
    """The order code of a negative float is less than all times: -2.5 was taken for what is over."""
    rows = pa.table({"at": range(len(values)), "v": pa.array(values, dtype)})
    stream = g.events(rows.schema.empty_table(), start="at", unit="s")
    query = stream.sliding("1h").agg(low=g.quantile("v", 0.2), middle=g.median("v"), least=g.min("v"))
    live = query.start(device=device)
    for at in range(len(values)):
        live.push(rows.slice(at, 1))
        live.advance(at_us(1_000_000 * at + 1))
        live.save(tmp_path / "saves")
        again = g.restore(tmp_path / "saves", query, device=device)
        assert again.state() == live.state()
    again.close()
    live.close()
    assert again.results() == live.results()


def test_two_queries_do_not_save_to_one_folder(tmp_path: Path) -> None:
    query = QUERIES["sums"]()
    one = at_rest(query)
    one.save(tmp_path)
    with pytest.raises(SourceError, match="has checkpoints already, the newest is 1, and this query was not restored"):
        at_rest(query).save(tmp_path)
    two, three = (g.restore(tmp_path, query, device="cpu") for _ in range(2))
    assert two.save(tmp_path) == 2
    for loser in (one, three):
        for _ in range(2):
            with pytest.raises(TakenError, match="Another query saves in"):
                loser.save(tmp_path)
    assert two.save(tmp_path) == 3


def test_going_back_to_an_older_checkpoint_and_on_from_there(tmp_path: Path) -> None:
    query = QUERIES["sums"]()
    live = at_rest(query)
    live.save(tmp_path, keep=3)
    # A running query's tables are views of what later steps change.
    then = _rows(live)
    go_on(live)
    assert live.save(tmp_path, keep=3) == 2
    back = g.restore(tmp_path, query, device="cpu", number=1)
    assert _rows(back) == then
    assert back.save(tmp_path, keep=1) == 3
    assert _rows(g.restore(tmp_path, query, device="cpu")) == then
    with pytest.raises(SourceError, match="has no checkpoint 1: it has 3"):
        g.restore(tmp_path, query, number=1)


def _rows(live: RunningQuery) -> dict[str, list[dict[str, object]]]:
    return {name: table.to_pylist() for name, table in live.state().items()}


def test_a_checkpoint_that_was_made_although_an_error_came_is_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = at_rest(QUERIES["sums"]())
    live.save(tmp_path)
    sync, calls = LocalFolder.publish, []

    def publish(self: LocalFolder, name: str, content: bytes) -> None:
        sync(self, name, content)
        calls.append(name)
        if len(calls) == 1:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(LocalFolder, "publish", publish)
    with pytest.raises(SourceError, match=r"cannot be written to: .*What it held before is whole"):
        live.save(tmp_path)
    assert live.save(tmp_path) == 3


@pytest.mark.parametrize("keep", [1, 3])
def test_a_follower_keeps_its_checkpoints_in_a_folder(tmp_path: Path, keep: int) -> None:
    """One that is restarted again and again pushes no older checkpoint out."""
    source, folder = g.store(tmp_path / "source"), tmp_path / "saves"
    for number in range(6):
        at = number * 60_000_000
        source.append(pa.table({"start": _times(at), "end": _times(at + 1), "n": [number]}), cti=at_us(at))
    folder.mkdir()
    counts = g.events(source).tumbling("1min").agg(n=g.count())
    live = counts.start(device="cpu")
    for _ in range(4):
        live.follow(source, into=g.store(tmp_path / "out"), checkpoint=folder, every=2, keep=keep, timeout=0)
        numbers = Manifests(LocalFolder(folder)).numbers()
        assert len(numbers) == keep
        live = g.restore(folder, counts, device="cpu")
        assert live.positions["store"] == 6
    assert g.restore(folder, counts, device="cpu", number=numbers[0]).positions["store"] == (6 if keep == 1 else 2)
    source.advance("infinity")
    live.follow(source, into=g.store(tmp_path / "out"), checkpoint=folder)
    assert g.store(tmp_path / "out").read()["n"].to_pylist() == [1] * 6


def _times(at: int) -> pa.Array:
    return pa.array([at], pa.timestamp("us", "UTC"))


def test_what_is_no_checkpoint_of_this_query_is_refused(tmp_path: Path) -> None:
    query = QUERIES["sums"]()
    live = at_rest(query)
    live.save(tmp_path)
    with pytest.raises(SourceError, match="is of another plan"):
        g.restore(tmp_path, QUERIES["orders"]())
    with pytest.raises(SourceError, match="has no checkpoint: it has none"):
        g.restore(Path(__file__).parent, query)
    live.checkpoint(tmp_path / "file")
    with pytest.raises(PlanError, match="is no folder, and has one checkpoint"):
        g.restore(tmp_path / "file", query, number=1)
    assert g.restore(tmp_path / "file", query, device="cpu").state() == live.state()
    with pytest.raises(PlanError, match="One checkpoint is kept"):
        live.save(tmp_path, keep=0)
    with pytest.raises(SourceError, match="is a file"):
        live.save(tmp_path / "file")
    keep: Any = "two"
    with pytest.raises(PlanError, match="One checkpoint is kept"):
        live.save(tmp_path, keep=keep)
    nowhere: Any = 5
    for call in (live.save, live.checkpoint, lambda path: g.restore(path, query)):
        with pytest.raises(PlanError, match="is 5, and no path"):
            call(nowhere)


def test_each_byte_of_each_file_counts(tmp_path: Path) -> None:
    query = QUERIES["sums"]()
    at_rest(query).save(tmp_path)
    chance = random.Random(5)
    for path in list(tmp_path.iterdir()):
        content = path.read_bytes()
        for at in chance.sample(range(len(content)), 20):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :])
            with pytest.raises(SourceError, match=f"{path.name} is damaged"):
                g.restore(tmp_path, query, device="cpu")
        path.write_bytes(content)
    assert g.restore(tmp_path, query, device="cpu").state()


@pytest.mark.parametrize("name", ["extremes", "outer join", pytest.param("each alive", marks=pytest.mark.deep)])
def test_a_manifest_that_was_written_anew_is_refused_or_harmless(tmp_path: Path, name: str) -> None:
    """Its seal is right, and what it says of the parts is not."""
    query, chance = QUERIES[name](), random.Random(3)
    at_rest(query).save(tmp_path)
    path = tmp_path / manifest_name(1)
    body = path.read_bytes().rpartition(b"\ncrc32:")[0]
    outcomes = set()
    for _ in range(12):
        said = json.loads(body)
        tables = said["content"]["state"]["tables"]
        one, other = chance.choice(list(tables)), chance.choice(list(tables))
        if chance.random() < 0.3:
            tables[one], tables[other] = tables[other], tables[one]
        elif tables[one]:
            part = chance.choice(tables[one])
            number = chance.choice([0, 1, 64, 10**12])
            beyond = {"column": chance.choice(["high", "group", "x"]), "limit": number}
            place = chance.choice(["at", "size"])
            newer = {"name": "n", "rows": {**part["rows"], place: chance.choice([0, part["rows"][place]])}}
            part |= chance.choice(
                [
                    {"changed": [newer]},
                    {"passed": number},
                    {"beyond": beyond},
                    {"rows": {**part["rows"], place: number}},
                ]
            )
            tables[other] += tables[one]
        sealed = json.dumps(said).encode()
        path.write_bytes(sealed + b"\ncrc32:%08x" % zlib.crc32(sealed))
        try:
            go_on(g.restore(tmp_path, query, device="cpu"))
        except DefectError:
            raise
        except GpuOpsError:
            outcomes.add("refused")
        else:
            outcomes.add("harmless")
    assert "refused" in outcomes


def test_a_state_goes_from_machine_to_machine(tmp_path: Path) -> None:
    """What a cluster does: a state is written under the name of an attempt, and restored elsewhere of what it lists."""
    query = QUERIES["inner join"]()
    folder = LocalFolder(tmp_path / "epochs")
    folder.make()
    live = at_rest(query)
    saved = save_state(live, folder, prefix(1, "part-3-"))
    assert all(file.name.startswith("000000000001-part-3-") for file in saved.files)
    sent = SavedState.from_json("The state", json.loads(json.dumps(saved.to_json())))
    assert sent == saved
    start = Start(query._plan, "cpu")
    again = restored_state("epoch 1", folder, sent, start, TRUSTLESS, Cache(tmp_path / "cache"))
    assert again.state() == live.state()
    go_on(again)
    go_on(live)
    assert again.state() == live.state()
    assert save_state(again, folder, prefix(2, "part-3-"), before=sent).files


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_mapped_from_a_cache_is_what_was_read(tmp_path: Path, name: str) -> None:
    """Each run has a file of its own. The second restore does without these files, and looks at none of their rows."""
    query = QUERIES[name]()
    folder = LocalFolder(tmp_path / "epochs")
    folder.make()
    live, cache, start = at_rest(query), Cache(tmp_path / "cache"), Start(query._plan, "cpu")
    with mock.patch.object(saved_states, "_APART", 1):
        saved = save_state(live, folder, prefix(1, "a-"))
        restored_state("epoch 1", folder, saved, start, TRUSTLESS, cache)
        for file in saved.lasting:
            (tmp_path / "epochs" / file.name).unlink()
        with mock.patch.object(restoring, "doubtful", side_effect=doubtful) as looked:
            again = restored_state("epoch 1", folder, saved, start, TRUSTLESS, cache)
        seen = [parts for (parts, _), _ in looked.call_args_list]
        sound = {part.name for parts in seen for each in parts.values() for part in each if part.is_sound}
        saved_parts = [part for parts in saved.tables.values() for part in parts]
        assert sound == {part.name for part in saved_parts if part.rows.file in saved.lasting}
        assert again.state() == live.state()
        for each in (again, live):
            for number, name_of in enumerate(each.input_ctis()):
                each.push(shaped(events(number + 3, 5, 1, 9), name_of), input=name_of)
                each.advance(at_us(6 * DAY), input=name_of)
        # The next epoch's state is of files that were looked at before, and of new ones.
        saved = save_state(again, folder, prefix(2, "a-"), before=saved)
        again = restored_state("epoch 2", folder, saved, start, TRUSTLESS, cache)
        assert again.state() == live.state()
        go_on(again)
        go_on(live)
        assert again.state() == live.state()


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_a_checkpoint_writes_what_is_new(tmp_path: Path, device: str) -> None:
    """Of 20,000 rows that are alive, a step of 100 rows has few written again, after a restore too."""
    query = g.events(pa.schema([("at", pa.int64()), ("v", pa.int64())]).empty_table(), start="at", end="v", unit="s")
    counts = query.snapshot().agg(n=g.count())
    live, folder = counts.start(device=device), tmp_path / "saves"
    sizes = []
    for number, rows in enumerate((20_000, 100, 100, 100, 100)):
        first = 100_000 * number
        live.push(pa.table({"at": range(first, first + rows), "v": range(10**9, 10**9 + rows)}))
        live.advance(at_us((first + rows) * 1_000_000))
        live.results()
        before = _sizes(folder)
        live.save(folder, keep=9)
        sizes.append(sum(size for name, size in _sizes(folder).items() if name not in before))
        if number == 2:
            live = g.restore(folder, counts, device=device)
    assert sizes[0] > 400_000
    assert max(sizes[1:]) < 30_000


@pytest.mark.parametrize("how", ["left", "anti", "full"])
@pytest.mark.parametrize("noted", [0, 1 << 12])
def test_a_checkpoint_writes_which_rows_of_a_join_have_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any, noted: int
) -> None:
    """Of 20,000 left rows of 200 keys that are alive, each step lets the 100 of one key be met.

    ::

        left    0 ├──────────────────────────────────      the first piece of each is given when it is met
        right        ├┤ one key    ├┤ another      ├┤ …    the cursors of 100 move on; the rows are named again
    """
    monkeypatch.setattr(changing_runs, "_FEW", noted)
    schema = pa.schema([("at", pa.int64()), ("till", pa.int64()), ("k", pa.int64())])
    one, two = (g.events(schema.empty_table(), start="at", end="till", unit="s", name=name) for name in ("one", "two"))
    query, rows, folder = one.join(two, on="k", how=how), 20_000, tmp_path / "saves"
    live, never = query.start(), query.start()
    sizes: list[int] = []
    for number in range(12):
        for each in (live, never):
            if not number:
                keys = [at % 200 for at in range(rows)]
                each.push(pa.table({"at": [0] * rows, "till": [10_000] * rows, "k": keys}), input="one")
            each.push(pa.table({"at": [10 * number + 5], "till": [10 * number + 8], "k": [number]}), input="two")
            each.advance(at_us(10_000_000 * (number + 1)))
            each.results()
        before = _sizes(folder)
        live.save(folder, keep=2)
        sizes.append(sum(size for name, size in _sizes(folder).items() if name not in before))
        if number in (3, 7):
            live = g.restore(folder, query)
        assert live.state() == never.state()
    assert sizes[0] > 400_000
    assert max(sizes[1:]) < 30_000
    for each in (live, never):
        each.close()
    assert live.results() == never.results()


@pytest.mark.parametrize(
    "name", [name if name in SAMPLED else pytest.param(name, marks=pytest.mark.deep) for name in WHOLE]
)
@pytest.mark.parametrize("device", ["cpu", "array"])
def test_a_state_that_was_saved_before_is_one_that_was_not(tmp_path: Path, name: str, device: str) -> None:
    """What a save takes for unchanged is so: a query that never saved is asked for all of its state at once."""
    query, chance = QUERIES[name](), random.Random(7)
    live, pushed = query.start(device=device), list[tuple[str, pa.Table, Any]]()
    at = dict.fromkeys(live.input_ctis(), 0)
    for _ in range(6):
        for number, each in enumerate(at):
            rows, upto = events(number, 0, 9, 60), at[each] + chance.randrange(1, 11)
            seconds = rows["at"][upto].as_py()
            pushed.append((each, rows.slice(at[each], upto - at[each]), at_us(seconds * 1_000_000)))
            _send(live, pushed[-1:])
            at[each] = upto
        live.save(tmp_path)
        never = query.start(device=device)
        _send(never, pushed)
        assert _alike(live) == _alike(never)


def _alike(live: RunningQuery) -> dict[str, pa.Table]:
    """Its state; of order codes, which are in runs, how often each is there."""
    made = live.state()
    for name, table in made.items():
        if table.column_names == ["group", "code", "count"]:
            summed = table.group_by(["group", "code"]).aggregate([("count", "sum")])
            made[name] = _in_order(summed.filter(pc.field("count_sum") != 0))
    return made


def _send(live: RunningQuery, pushed: list[tuple[str, pa.Table, Any]]) -> None:
    for name, rows, cti in pushed:
        live.push(rows, input=name)
        live.advance(cti, input=name)


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("asked", ["totals", "distinct", "median", "data window", "last results"])
def test_a_checkpoint_writes_which_groups_have_changed(tmp_path: Path, asked: str, device: str) -> None:
    """Of 20,000 groups, a step has new rows of 50 and one group more; a text as key, where it can be."""
    schema = pa.schema([("at", pa.int64()), ("till", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
    stream = g.events(schema.empty_table(), start="at", end="till", unit="s").by("k")
    query = {
        "totals": lambda: stream.snapshot().agg(n=g.count(), s=g.sum("v")),
        "distinct": lambda: stream.snapshot().agg(n=g.count_distinct("v")),
        "median": lambda: stream.snapshot().agg(n=g.median("v")),
        "data window": lambda: stream.last(2).agg(s=g.sum("v")),
        "last results": lambda: stream.tumbling("1s", fill="last").agg(s=g.sum("v")),
    }[asked]()
    live, folder = query.start(device=device), tmp_path / "saves"
    sizes = []
    for number, rows in enumerate((20_000, *[51] * 7)):
        first = number if asked == "last results" else 100_000 * number
        keys = [f"a key of some length {at}" for at in (*range(number, number + rows - 1), 30_000 + number)]
        till = [first + 1 if asked == "last results" else 10**9] * rows
        live.push(pa.table({"at": [first] * rows, "till": till, "k": keys, "v": range(rows)}))
        live.advance(at_us((first + 1) * 1_000_000))
        live.results()
        before = _sizes(folder)
        live.save(folder, keep=9)
        sizes.append(sum(size for name, size in _sizes(folder).items() if name not in before))
        if number in (2, 5):
            again = g.restore(folder, query, device=device)
            assert again.state() == live.state()
            live = again
    assert sizes[0] > 800_000
    assert max(sizes[1:]) < 60_000


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("asked", ["walked", "at times", "changes"])
def test_a_checkpoint_writes_what_is_new_of_arrivals(tmp_path: Path, asked: str, device: str) -> None:
    """Of 20,000 rows in a window by arrivals, of 5,000 keys, a step has 50 more."""
    schema = pa.schema([("at", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
    window = g.arrivals(g.events(schema.empty_table(), start="at", unit="us")).last_span("2d")
    query = {
        "walked": lambda: window.deliveries("k", s=g.sum("v"), by="k"),
        "at times": lambda: window.deliveries("k", s=g.sum("v"), by="k", shown="both").output("last", every="10s"),
        "changes": lambda: window.deliveries("k", m=g.max("v"), by="k", shown="both"),
    }[asked]()
    live, folder, sizes = query.start(device=device), tmp_path / "saves", list[int]()
    for number, rows in enumerate((20_000, *[50] * 6)):
        keys = [(number * 70 + at) % 5_000 for at in range(rows)]
        first = 100_000_000 * number
        live.push(pa.table({"at": range(first, first + rows), "k": keys, "v": range(rows)}))
        live.advance(at_us(first + rows))
        live.results()
        before = _sizes(folder)
        live.save(folder, keep=9)
        sizes.append(sum(size for name, size in _sizes(folder).items() if name not in before))
        if number in (2, 4):
            again = g.restore(folder, query, device=device)
            assert again.state() == live.state()
            live = again
    assert sizes[0] > 700_000
    # The first output of all keys is in the second one.
    assert max(sizes[2:]) < 60_000


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("asked", ["open starts", "by the machine", "instances"])
def test_a_checkpoint_writes_what_is_new_of_patterns_and_contexts(tmp_path: Path, asked: str, device: str) -> None:
    """Of 20,000 starts, or instances, 10 end in a step and 40 begin."""
    schema = pa.schema([("at", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
    every = g.arrivals(g.events(schema.empty_table(), start="at", unit="us"))
    first = g.every("a", every, g.col("v") == 0)
    queries: dict[str, Callable[[], g.Stream]] = {
        "open starts": lambda: g.pattern(first >> g.one("b", every, g.col("v") == 1, on="k")).deliveries("a.k", "b.v"),
        "by the machine": lambda: g.pattern(
            first >> (g.one("b", every, g.col("v") == 1, on="k").within("2d") | g.one("c", every, g.col("v") == 2))
        ).deliveries("a.k", "b.k"),
        "instances": lambda: every.within(
            every.filter(g.col("v") == 0).until(every.filter(g.col("v") == 1), on="k"), on="k"
        ).at_ends(n=g.count()),
    }
    query = queries[asked]()
    live, folder, sizes = query.start(device=device), tmp_path / "saves", list[int]()
    for number, rows in enumerate((20_000, *[50] * 6)):
        begin, ends = 100_000_000 * number, 0 if number == 0 else 10
        keys = [*range(number * 1000, number * 1000 + ends), *range(begin, begin + rows - ends)]
        live.push(
            pa.table({"at": range(begin, begin + rows), "k": keys, "v": [1] * ends + [0] * (rows - ends)}, schema)
        )
        live.advance(at_us(begin + rows))
        assert live.results().num_rows == ends
        before = _sizes(folder)
        live.save(folder, keep=9)
        sizes.append(sum(size for name, size in _sizes(folder).items() if name not in before))
        if number in (2, 4):
            again, looked_at = (g.restore(folder, query, device=device) for _ in range(2))
            assert looked_at.state() == live.state()
            live = again
    assert sizes[0] > 800_000
    assert max(sizes[1:]) < 100_000


@pytest.mark.parametrize("asked", ["totals", "distinct", "median", "each"])
def test_new_rows_are_looked_at_beside_all_groups(tmp_path: Path, asked: str) -> None:
    """Of 300 groups one has a new row; the table of groups is in files that were looked at before."""
    schema = pa.schema([("at", pa.int64()), ("till", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
    stream = g.events(schema.empty_table(), start="at", end="till", unit="s").by("k")
    query = {
        "totals": lambda: stream.snapshot().agg(n=g.count(), s=g.sum("v")),
        "distinct": lambda: stream.snapshot().agg(n=g.count_distinct("v")),
        "median": lambda: stream.snapshot().agg(n=g.median("v")),
        "each": lambda: stream.last_span("1000s").each(n=g.count(), s=g.sum("v")),
    }[asked]()
    live, folder, cache = query.start(device="cpu"), LocalFolder(tmp_path / "epochs"), Cache(tmp_path / "cache")
    folder.make()
    start, saved = Start(query._plan, "cpu"), None
    with mock.patch.object(saved_states, "_APART", 1):
        for number, keys in enumerate([range(300), [290], [291]]):
            many = len(keys)
            live.push(pa.table({"at": [number] * many, "till": [900] * many, "k": list(keys), "v": [number] * many}))
            live.advance(at_us((number + 1) * 1_000_000))
            before, saved = live.state(), save_state(live, folder, prefix(number + 1, "a-"), before=saved)
            live = restored_state("an epoch", folder, saved, start, TRUSTLESS, cache)
            assert live.state() == before
    live.close()
    live.results()


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()} if folder.exists() else {}


@pytest.mark.parametrize("name", ["sums", "values", "orders", "filled", "outer join", "walked"])
def test_a_save_that_failed_leaves_nothing_out_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What has changed was told to the failed one; looking at the state in between asks for it, too."""
    query, chance = QUERIES[name](), random.Random(3)
    live, create, calls = query.start(device="cpu"), LocalFolder.create, list[str]()

    def refused(self: LocalFolder, file: str) -> Any:
        calls.append(file)
        raise OSError(28, "No space left on device")

    while not live.closed:
        _feed(live, chance)
        live.results()
        if calls and len(calls) % 2:
            live.state()
        monkeypatch.setattr(LocalFolder, "create", refused)
        with pytest.raises(SourceError, match="No space left"):
            live.save(tmp_path)
        monkeypatch.setattr(LocalFolder, "create", create)
        if chance.random() < 0.7:
            live.save(tmp_path)
            assert g.restore(tmp_path, query, device="array").state() == live.state()
    assert calls
