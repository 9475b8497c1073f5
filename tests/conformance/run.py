"""Run conformance vectors through the public API and say which queries pass.

    python tests/conformance/run.py FILE… [--engine local|live|spark] [--device cpu|gpu|array] [--vector ID] [--alone]

Each vector is built as a user would build it and its answer compared with what the vector's own engine gave. A line per
query says how many passed, failed, or are unsupported because the API has no word for them. It exits with 0 only if
nothing failed.

On Spark, vectors that ask exactly the same are one query over all their events, grouped by vector, so that each is
still answered by itself; and the answers of many queries are fetched together, because a job costs more than a vector.
``--alone`` makes a query and a job of each vector.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # a script finds its own folder only

import pyarrow as pa  # noqa: E402

import gpu_ops as g  # noqa: E402
from gpu_ops.core.time import MAX_TIME  # noqa: E402
from gpu_ops.devices import DEVICES  # noqa: E402
from gpu_ops.plan.advance import AdvanceTime  # noqa: E402
from gpu_ops.plan.nodes import Source  # noqa: E402
from tests.conformance import arrivals, epl, queries, streamcruncher  # noqa: E402
from tests.conformance.unsupported import UnsupportedError  # noqa: E402
from tests.conformance.vectors import Vector, difference, read, table  # noqa: E402
from tests.support import join_reference, reference  # noqa: E402
from tests.support.reference import Event  # noqa: E402
from tests.support.rows import rows, to_events  # noqa: E402
from tests.support.ticks import at_us  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN_FAILURES = 3
QUERIES_OF_A_JOB = 32

Ask = Callable[[g.Stream], pa.Table]
"""How a query is run."""
Difference = Callable[[Mapping[str, Any]], str | None]
"""What is wrong with the answers to what a line asks."""


@dataclass(frozen=True)
class Verdict:
    """What became of a vector: "passed", "failed" or "unsupported", and why."""

    vector: Vector
    word: str
    why: str = ""


def judged(vector: Vector, answer: Sequence[Event]) -> Verdict:
    """The verdict on an answer."""
    wrong = difference(vector, answer) or _beside_the_brute_force(vector, answer)
    return Verdict(vector, "failed", wrong) if wrong else Verdict(vector, "passed")


def excused(vectors: Sequence[Vector], error: Exception) -> Iterator[Verdict]:
    """The verdict on vectors that have no answer: whatever a query raises is its failure."""
    if isinstance(error, UnsupportedError):
        word, why = "unsupported", str(error)
    else:
        word, why = "failed", "".join(traceback.format_exception(error, limit=-2))
    for vector in vectors:
        yield Verdict(vector, word, why)


def local(vectors: Sequence[Vector], device: str, *, live: bool = False) -> Iterator[Verdict]:
    """The local engine: a query per vector; or a running query, to which its events are pushed by three."""
    # Languages whose expected rows are what a listener is handed after each event and each turn of the clock.
    languages: Mapping[str, Difference] = {
        "epl": partial(epl.difference, device=device, together=live),
        "rql": partial(streamcruncher.difference, device=device, together=live),
    }
    for vector in vectors:
        language = next((language for language in languages if language in vector.line), None)
        if language is not None:
            yield listened(vector, languages[language])
            continue
        try:
            queries.check(vector)
            arrive = arrivals.has(vector)
            make = arrivals.stream if arrive else at_rest
            inputs = {name: make(vector, name) for name in vector.inputs}
            query = queries.build(inputs, vector)
            # What is final of an input that has not ended is a running query's answer.
            runs = live or queries.is_open(vector)
            answer = to_events(pushed(query, device, in_time=not arrive) if runs else query.collect(device=device))
            wrong = arrivals.difference(vector, inputs[vector.inputs[0]]) if arrive and len(inputs) == 1 else None
        except Exception as error:  # noqa: BLE001  (a failure of this one, and the others go on)
            yield from excused([vector], error)
        else:
            yield Verdict(vector, "failed", wrong) if wrong else judged(vector, answer)


def listened(vector: Vector, difference: Difference) -> Verdict:
    """Whether an engine's listeners would be handed the same: a vector of theirs asks several queries."""
    try:
        wrong = difference(vector.line)
    except Exception as error:  # noqa: BLE001  (a failure of this one, and the others go on)
        return next(excused([vector], error))
    return Verdict(vector, "failed", wrong) if wrong else Verdict(vector, "passed")


def pushed(query: g.Stream, device: str, *, in_time: bool) -> pa.Table:
    """What a running query gives for the events of its own sources; in order of time, CTIs go along."""
    sources = {node.name: node.source for node in query._node.walk() if isinstance(node, Source)}
    running, results = query.start(device=device), []
    for cut in turns(
        {name: pa.concat_tables(source.raw_tables()) for name, source in sources.items()}, in_time=in_time
    ):
        to = {"input": cut.name} if len(sources) > 1 else {}
        running.push(cut.rows, **to)
        if cut.cti is not None:
            running.advance(at_us(cut.cti), **to)
        results.append(running.results())
    running.close()
    ends = all(node.settings.final for node in query._node.walk() if isinstance(node, AdvanceTime))
    if ends and running.cti != MAX_TIME:
        raise AssertionError(f"The last CTI is {running.cti}, not infinity.")
    return pa.concat_tables([*results, running.results()])


@dataclass(frozen=True)
class Cut:
    """Rows of an input, and the CTI behind them."""

    name: str | None
    rows: pa.Table
    cti: int | None


def turns(inputs: Mapping[str | None, pa.Table], *, in_time: bool) -> list[Cut]:
    """The rows of inputs by three: in order of time, with the CTIs that what follows allows; or in turns."""
    cuts: list[tuple[int, Cut]] = []
    for name, whole in inputs.items():
        rows = whole.sort_by("start") if in_time else whole
        for at in range(0, rows.num_rows, 3):
            cti = rows["start"][at + 3].value if in_time and at + 3 < rows.num_rows else None
            cuts.append((rows["start"][at].value if in_time else at, Cut(name, rows.slice(at, 3), cti)))
    return [cut for _, cut in sorted(cuts, key=lambda each: each[0])]


def at_rest(vector: Vector, name: str) -> g.Stream:
    """The events of an input of a vector, in no order."""
    events = table([vector], name).drop_columns("vector")
    return g.events(events, start="start", end="end", null_end="open", name=name)


Asked = tuple[list[Vector], "DataFrame"]


class Spark:
    """Spark: a query per batch of vectors that ask the same, and a job for many of them."""

    def __init__(self, session: SparkSession, device: str) -> None:
        self.session = session
        self.device = device

    def verdicts(self, vectors: Sequence[Vector], *, queries_of_a_job: int = QUERIES_OF_A_JOB) -> Iterator[Verdict]:
        """The verdict on each vector."""
        shapes = defaultdict(list)
        for vector in vectors:
            shapes[vector.shape if queries_of_a_job > 1 else vector.name].append(vector)
        alike: dict[object, list[Asked]] = defaultdict(list)
        for batch in shapes.values():
            try:
                queries.check(batch[0])
                answer = self.ask(batch)
            except Exception as error:  # noqa: BLE001  (a failure of these, and the others go on)
                yield from excused(batch, error)
            else:
                alike[tuple(answer.dtypes)].append((batch, answer))
        for asked in alike.values():
            for at in range(0, len(asked), queries_of_a_job):
                yield from self.fetch(asked[at : at + queries_of_a_job])

    def ask(self, batch: list[Vector]) -> DataFrame:
        """The answers of a batch's vectors, with a column ``vector``; nothing has run yet."""
        if arrivals.has(batch[0]):
            raise UnsupportedError("Spark has no order of arrival")
        whole = ("vector",) if len(batch) > 1 else ()
        inputs = {}
        for name in batch[0].inputs:
            source = table(batch, name)
            frame = self.session.createDataFrame(source if whole else source.drop_columns("vector"))
            inputs[name] = g.events(frame, start="start", end="end", null_end="open")
        answer: DataFrame = queries.build(inputs, batch[0], whole).collect(device=self.device)
        if not whole:
            from pyspark.sql.functions import lit

            answer = answer.withColumn("vector", lit(batch[0].name))
        return answer.select(
            "start", "end", "vector", *(n for n in answer.columns if n not in {"start", "end", "vector"})
        )

    def fetch(self, asked: Sequence[Asked]) -> Iterator[Verdict]:
        """Run queries whose answers have the same columns."""
        together = reduce(lambda left, right: left.union(right), (answer for _, answer in asked))
        try:
            events = to_events(together.toArrow())
        except Exception as error:  # noqa: BLE001  (one of these fails: each by itself, then)
            if len(asked) == 1:
                yield from excused(asked[0][0], error)
            else:
                for one in asked:
                    yield from self.fetch([one])
            return
        answers = defaultdict(list)
        for event in events:
            answers[event.payload["vector"]].append(_without_vector(event))
        for batch, _ in asked:
            for vector in batch:
                yield judged(vector, answers[vector.name])


def _without_vector(event: Event) -> Event:
    payload = {name: value for name, value in event.payload.items() if name != "vector"}
    return Event(event.start, event.end, payload)


def _beside_the_brute_force(vector: Vector, answer: Sequence[Event]) -> str | None:
    """Where segments do not show all of our rows, nor Trill's rows are ours, there is a second judge."""
    events = vector.events()
    if vector.params is not None and vector.query == "stitch":
        expected = reference.stitch(reference.select(events, lambda event: {"k": event.payload["k"]}))
    elif vector.params is not None and vector.query == "chop":
        expected = reference.chop(events, vector.params["period"], vector.params["offset"])
    elif vector.params is not None and vector.query == "distinct_key":
        expected = join_reference.distinct(events, ["k"])
    else:
        return None
    return None if rows(answer) == rows(expected) else "other rows than the brute force"


def report(verdicts: Sequence[Verdict]) -> Counter[str]:
    """Print a line per query, the first failures, and the sum; give the sum."""
    by_query = defaultdict(list)
    for verdict in verdicts:
        by_query[verdict.vector.query].append(verdict)
    width = max(map(len, by_query), default=0)
    for query, found in sorted(by_query.items()):
        words = Counter(verdict.word for verdict in found)
        why = sorted({verdict.why for verdict in found if verdict.word == "unsupported"})
        counts = "  ".join(f"{word} {words[word]:4}" for word in ("passed", "failed", "unsupported"))
        print(f"{query:{width}}  {counts}{'  ' if why else ''}{'; '.join(why)}")
        for verdict in [verdict for verdict in found if verdict.word == "failed"][:SHOWN_FAILURES]:
            print(f"    {verdict.vector.name} {dict(verdict.vector.params or {})}: {verdict.why}")
    total = Counter(verdict.word for verdict in verdicts)
    print(f"passed {total['passed']} failed {total['failed']} unsupported {total['unsupported']}")
    return total


def spark_session() -> SparkSession:
    """The session that is there, else Spark on this machine, small: the vectors have tens of events."""
    from pyspark.sql import SparkSession

    here = SparkSession.getActiveSession()
    if here is not None:
        return here
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("gpu_ops conformance")
        .config("spark.default.parallelism", "1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def main(arguments: Sequence[str] | None = None) -> int:
    """Run files of vectors; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help=".jsonl.gz or .jsonl")
    parser.add_argument("--engine", choices=("local", "live", "spark"), default="local")
    parser.add_argument("--device", choices=[*DEVICES], default="cpu")
    parser.add_argument("--vector", action="append", metavar="ID", help="only this one (may be given again)")
    parser.add_argument("--alone", action="store_true", help="on Spark: a query and a job per vector")
    options = parser.parse_args(arguments)
    for file in options.files:
        if not file.is_file():
            parser.error(f"no file {file}")
    vectors = [vector for file in options.files for vector in read(file)]
    if options.vector:
        vectors = [vector for vector in vectors if vector.name in options.vector]
        unknown = set(options.vector) - {vector.name for vector in vectors}
        if unknown:
            parser.error(f"no vector {', '.join(sorted(unknown))}")
    if options.engine != "spark":
        verdicts = local(vectors, options.device, live=options.engine == "live")
    else:
        spark = Spark(spark_session(), options.device)
        verdicts = spark.verdicts(vectors, queries_of_a_job=1 if options.alone else QUERIES_OF_A_JOB)
    return 1 if report(list(verdicts))["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
