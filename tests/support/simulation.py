"""One seeded loop in which producers, a follower, rivals and readers share a disk that fails.

A world is a query, its sources and its sink on one disk. Its actions are drawn before it begins, each with a seed of
its own, so that a world can be run again without some of them: that is how the trace of a failure becomes short.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.microbatches.files import make_folder
from gpu_ops.microbatches.folders import BusyError
from gpu_ops.microbatches.writer import Writer
from tests.support.disk import Disk, PowerCut, Process
from tests.support.faults import draw_faults
from tests.support.followed import QUESTIONS, TRIPWIRE, Feed, Written
from tests.support.runs import Run
from tests.support.ticks import at_us
from tests.support.witness import ViolationError, Witness, demand

Action = tuple[str, int]
"""What is done, and the seed of what it draws."""

WEIGHTS = {
    "produce": 34,
    "follow": 34,
    "compact": 6,
    "expire": 2,
    "tidy": 3,
    "rival": 8,
    "read": 4,
    "stop": 4,
    "power": 3,
}
RIVALS = ["a second follower", "a source made anew", "another's checkpoint"]
"""Who is refused while the follower is not at work."""

IDLE_RIVALS = [
    "a second follower",
    "a source made anew",
    "another's checkpoint",
    "an older checkpoint",
    "somebody's batch in the sink",
]
"""Who comes while the follower is not at work."""

AMID = {"read": 3, "produce": 3, "compact": 3, "expire": 1, "rival": 3, "follow": 2}
"""What may happen amid a call of another process."""

EVERY: list[int | str] = [1, 2, 4, 50, "9ms"]
"""How often a follower makes a checkpoint."""

RETRY = 0.5
"""How often the same query is told to go on after an error."""


@dataclass
class Producer:
    """Who writes a source: appends, merges and lets expire, and keeps the writer open for a while or not."""

    witness: Witness
    feed: Feed
    process: Process
    writer: Writer | None = None


class World:
    """A query, its sources and its sinks on one disk, and what has been done so far.

    Attributes:
        trace: What was done, a line for each thing.
        counts: How often what happened.
        turns: How many steps there were: a write, a read, a batch that was followed, also amid a step of another.
        disk: Where everything is.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.disk = Disk(random.Random(seed + 1))
        self.question = self._chance.choice(QUESTIONS)
        self.policy = self._chance.choice(self.question.policies)
        self.trace: list[str] = [f"seed {seed}: {self.question.name}, CTIs {self.policy}"]
        self.counts: Counter[str] = Counter()
        self._follower = Process("follower")
        self.turns = 0
        self._steps_to_a_signal = -1
        self._runs: list[Run] = []
        self._made = 0
        self._ends = 0
        self._at_a_step = False
        self._violation: ViolationError | None = None

    def start(self) -> None:
        """Make the sources, each with a first batch, which decides its columns."""
        self.producers: dict[str | None, Producer] = {}
        for name in self.question.inputs:
            witness = Witness(self.disk.root / "sources" / (name or "source"))
            made = Producer(witness, Feed(self.question, self.policy), Process("producer"))
            self.producers[name] = made
            with self.disk.process(made.process), g.store(witness.path).writer() as writer:
                self._append(made, writer, 1)
                witness.commit()
        self.afresh("the world begins")

    def afresh(self, why: str) -> None:
        """Give the follower a new sink, which its operator does when it must start anew."""
        every: int | str = self._chance.choice(EVERY)
        with self.disk.aside(Process("operator")):
            folder = self.disk.folder(f"run {len(self._runs) + 1}")
            self._runs.append(Run(self.question, self.policy, folder, every, self._chance.choice([1, 1, 3])))
            if self._chance.random() < 0.5:  # its checkpoints are in a folder
                make_folder(self.run.checkpoint)
            self.run.another_start(self.witnesses)
        self._say(f"a new {folder.name}: {why}")

    @property
    def run(self) -> Run:
        """What the follower writes to now."""
        return self._runs[-1]

    @property
    def witnesses(self) -> dict[str | None, Witness]:
        """What is known of each source."""
        return {name: each.witness for name, each in self.producers.items()}

    def act(self, action: Action) -> None:
        """Do something, and hold what is there then against what should be."""
        kind, seed = action
        self._do(kind, random.Random(seed))
        if self._violation is not None:
            raise self._violation
        self.check()

    def _do(self, kind: str, chance: random.Random, *, amid: bool = False) -> None:
        done: Any = getattr(self, f"_{kind}")
        done(chance, amid=amid)

    def _say(self, what: str) -> None:
        shown = what.replace(f"{self.disk.root}/", "")
        self.trace.append(f"{'  ' * len(self.disk.processes)}{shown}")

    # What runs, and what ends it

    @contextmanager
    def _running(self, process: Process, what: str, chance: random.Random, *, amid: bool) -> Iterator[None]:
        """A process's code with faults, and other processes amid its calls; only errors of ours come out."""
        writes = process.name in ("producer", "tidier")
        process.faults, process.happened = [] if amid else draw_faults(chance, writes=writes), []
        if not amid:
            self._plan_interruptions(chance)
        self._say(what)
        self.turns += 1
        self.counts[process.name] += 1
        try:
            with self.disk.aside(process) if amid else self.disk.process(process):
                yield
        except PowerCut:
            self._power(chance, amid=False)
        except (g.GpuOpsError, KeyboardInterrupt, ViolationError):
            raise
        except Exception as error:
            raise ViolationError(f"an error that is not ours: {error!r}") from error
        finally:
            if not amid:
                self.disk.interrupt = None
            if process.happened:
                self._say(f"  there happened: {', '.join(process.happened)}")
                self.counts.update(each.split(" ")[0] for each in process.happened)

    def _plan_interruptions(self, chance: random.Random) -> None:
        left = [
            (int(chance.expovariate(1 / 12)), chance.randrange(1 << 30)) for _ in range(chance.choice([0, 0, 1, 3]))
        ]
        calls = 0

        def interrupt(kind: str, path: str) -> None:
            nonlocal calls
            calls += 1
            while left and calls > min(left)[0]:
                own = random.Random(min(left)[1])
                left.remove(min(left))
                self._at_a_step = kind == "step"
                try:
                    self._do(own.choices(list(AMID), list(AMID.values()))[0], own, amid=True)
                except ViolationError as error:  # which the code around must not take for an error of its own
                    self._violation = self._violation or error
                self._at_a_step = False

        self.disk.interrupt = interrupt if left else None

    def _refused(self, process: Process, error: BaseException) -> None:
        """Whether a refusal has a reason."""
        self._say(f"  {type(error).__name__}: {error}")
        self.counts["refused"] += 1
        busy = isinstance(error, BusyError) and bool(self.disk.processes)
        reason = busy or bool(process.happened)
        demand(reason, f"an error without a reason: {error}")
        denied = any("EACCES" in each for each in process.happened)
        demand(not (denied and "give up" in str(error)), f"what may not be read is called damaged: {error}")

    # Who writes sources

    def _write(self, of: Producer, what: str, chance: random.Random, write: Any, *, amid: bool = False) -> None:
        if of.process in self.disk.processes:
            return
        with self.disk.aside(Process("observer")):
            self.run_ahead()
        try:
            with self._running(of.process, f"{what} at {of.witness.path.name}", chance, amid=amid):
                writer = of.writer or g.store(of.witness.path).writer()
                of.writer = writer
                write(writer)
                swallowed = [each for each in of.process.happened if "fsync" in each]
                demand(not swallowed, f"{what} went well, and yet: {swallowed}")
                of.witness.commit()
                if chance.random() < 0.7:
                    of.writer = None
                    writer.close()
        except g.GpuOpsError as error:
            self._refused(of.process, error)
        if of.process.dead:
            of.process, of.writer = Process("producer"), None
        elif of.writer is not None and chance.random() < 0.3:
            of.writer.close()
            of.writer = None
        if amid:
            with self.disk.aside(Process("observer")):
                of.witness.look()

    def run_ahead(self) -> None:
        """The followers that nothing stops take in what there is, before it expires."""
        self.run.go_on(self.witnesses)

    def _any_producer(self, chance: random.Random) -> Producer:
        return chance.choice(list(self.producers.values()))

    def _produce(self, chance: random.Random, *, amid: bool = False) -> None:
        of = self._any_producer(chance)
        size = chance.choice([0, 1, 1, 2, 3, 3])
        if size:
            self._write(of, f"{size} batches", chance, lambda writer: self._append(of, writer, size, chance), amid=amid)
        elif self.policy == "promised":
            cti = max(of.feed.now, of.witness.cti or 0)
            self._write(of, f"CTI {cti}", chance, lambda writer: self._advance(of, writer, cti), amid=amid)

    def _append(self, of: Producer, writer: Writer, size: int, chance: random.Random | None = None) -> None:
        before = of.witness.cti
        drawn = [of.feed.draw(chance or self._chance, before) for _ in range(size)]
        promised = drawn[-1][1]
        after = before if promised is None else promised
        ctis = [*[before] * (size - 1), after]
        of.witness.tried = [Written(events, cti) for (events, _), cti in zip(drawn, ctis, strict=True)]
        if size == 1:
            writer.append(drawn[0][0], at_us(promised))
        else:
            writer.extend([events for events, _ in drawn], at_us(promised))

    def _advance(self, of: Producer, writer: Writer, cti: int) -> None:
        of.witness.tried = [Written(of.witness.batches[0].events.slice(0, 0), cti)]
        writer.advance(at_us(cti))

    def _compact(self, chance: random.Random, *, amid: bool = False) -> None:
        rows = chance.choice([4, 12, 1000])
        self._write(
            self._any_producer(chance), f"compact({rows})", chance, lambda writer: writer.compact(rows), amid=amid
        )

    def _expire(self, chance: random.Random, *, amid: bool = False) -> None:
        of = self._any_producer(chance)
        if of.process in self.disk.processes:
            return
        bound = of.feed.now - chance.choice([0, 5, 30])
        of.witness.expired = max(of.witness.expired, bound)
        self._write(of, f"expire({bound})", chance, lambda writer: writer.expire(at_us(bound)), amid=amid)
        with self.disk.aside(Process("observer")):
            of.witness.look()
            self.run.another_start(self.witnesses)

    # Who follows

    def _follow(self, chance: random.Random, *, amid: bool = False) -> None:
        process, run = self._follower, self.run
        if process in self.disk.processes:
            return
        with self.disk.aside(Process("observer")):
            run.another_start(self.witnesses)  # amid an expiry, which goes file by file
        TRIPWIRE.reset()
        if not amid and chance.random() < 0.4:
            TRIPWIRE.set(chance.choice([ValueError("once"), KeyboardInterrupt()]), chance.randrange(3))
        self._steps_to_a_signal = chance.randrange(4) if not amid and chance.random() < 0.1 else -1
        try:
            with self._running(process, f"follow{'' if run.live is None else ' on'}", chance, amid=amid):
                run.follow(self.witnesses, self._on_step)
        except (g.GpuOpsError, KeyboardInterrupt) as error:
            self._follower_stopped(error, chance)
        except SystemExit as ended:
            self._say(f"  it stops at signal {ended.code}")
            demand(ended.code == 128 + signal.SIGTERM, f"the follower ended with {ended.code}")
            self.disk.forget(process)
        finally:
            TRIPWIRE.error = None
        if TRIPWIRE.tripped:
            self._say("  a function of the user's raised an error, once")
            self.counts["function raised"] += 1
        if process.dead:
            self._follower, run.live = Process("follower"), None

    def _on_step(self, _: object) -> None:
        with self.disk.call("step", str(self.run.folder)):
            self.counts["step"] += 1
            self.turns += 1
            self._steps_to_a_signal -= 1
            if self._steps_to_a_signal == -1:
                signal.raise_signal(signal.SIGTERM)

    def _something_has_expired(self) -> bool:
        with self.disk.aside(Process("observer")):
            return any(each.witness.gone for each in self.producers.values())

    def _follower_stopped(self, error: BaseException, chance: random.Random) -> None:
        run = self.run
        if run.live is None or chance.random() >= RETRY:
            failed, run.live, run.failed = run.failed, None, False
        else:
            failed, run.failed = run.failed, True
        gone = self._something_has_expired()
        if gone and "expired" in str(error):
            self._say(f"  {error}")
            self.counts["expired"] += 1
            self.afresh("what the follower needs has expired")
        elif isinstance(error, KeyboardInterrupt) or TRIPWIRE.tripped:
            self._say(f"  {error!r}")
            self.counts["function failed"] += 1
            demand(TRIPWIRE.tripped, "an interruption from nowhere")
        elif failed and "fail" in str(error):
            self._say(f"  {error}")
            self.counts["failed query refused"] += 1
            run.live, run.failed = None, False
        else:
            self._refused(self._follower, error)

    def _stop(self, chance: random.Random, *, amid: bool = False) -> None:
        self._say("the follower is killed while it waits")
        self.turns += 1
        self.disk.forget(self._follower)
        self._follower, self.run.live = Process("follower"), None

    # What happens to all

    def _power(self, chance: random.Random, *, amid: bool = False) -> None:
        self._say("the power is cut")
        self.turns += 1
        self.counts["power cut"] += 1
        for each in self.producers.values():
            self.disk.forget(each.process)
            each.process, each.writer = Process("producer"), None
        self.disk.forget(self._follower)
        self._follower, self.run.live = Process("follower"), None
        self.disk.power_cut()
        with self.disk.aside(Process("observer")):
            for each in self.producers.values():
                each.witness.look(power_was_cut=True)
            self.run.another_start(self.witnesses)
        if any(each.witness.vanished for each in self.producers.values()):
            for each in self.producers.values():
                each.witness.vanished = False
            self.afresh("batches vanished that the follower may have read, and of which nobody was told that they last")

    def _tidy(self, chance: random.Random, *, amid: bool = False) -> None:
        """Another process merges files of the sink."""
        if self._follower in self.disk.processes or not self.run.begun:
            return
        process = Process("tidier")
        try:
            with self._running(process, "compact the sink", chance, amid=amid):
                g.store(self.run.into).compact(chance.choice([4, 12, 1000]))
        except g.GpuOpsError as error:
            self._refused(process, error)

    def _read(self, chance: random.Random, *, amid: bool = False) -> None:
        process, run = Process("reader"), self.run
        sources = self.witnesses
        try:
            with self._running(process, "read", chance, amid=amid):
                for each in self.producers.values():
                    each.witness.glance()
                found = list(g.store(run.into).batches())
                with self.disk.aside(Process("observer")):
                    run.go_on(sources)
                    run.compare(found)
        except g.GpuOpsError as error:
            self._refused(process, error)

    def _rival(self, chance: random.Random, *, amid: bool = False) -> None:
        """Somebody else writes to the sink, or follows with what is not the follower's: that is refused."""
        following, run = self._follower in self.disk.processes, self.run
        if following and not self._at_a_step:
            return
        earlier = [each.checkpoint for each in self._runs[:-1] if each.kept]
        kind = chance.choice(["a writer", "a second follower"] if following else IDLE_RIVALS)
        if (not following and not (run.begun and run.kept)) or (kind == "another's checkpoint" and not earlier):
            return
        sources = {name: each.witness.path for name, each in self.producers.items()}
        may_pass, refused = False, False
        try:
            with self._running(Process(kind), kind, chance, amid=True):
                if kind == "a writer":
                    g.store(run.into).writer().close()
                elif kind == "a second follower":
                    run.follow_apart(sources, None)
                elif kind == "a source made anew":
                    run.follow_apart(
                        {name: self._made_anew(each) for name, each in self.producers.items()}, run.checkpoint
                    )
                elif kind == "another's checkpoint":
                    run.follow_apart(sources, chance.choice(earlier))
                elif kind == "an older checkpoint":
                    older = [each for each in run.older if each.exists()]
                    may_pass = True
                    run.follow_apart(sources, chance.choice(older or [run.checkpoint]))
                else:
                    may_pass = not run.write_foreign()
                    run.follow_apart(sources, run.checkpoint)
        except g.GpuOpsError as error:
            self._say(f"  {type(error).__name__}: {error}")
            refused = True
        gone = self._something_has_expired()
        demand(refused or may_pass, f"{kind} was not refused")
        busy = refused and bool(self.disk.processes)
        demand(not refused or kind != "an older checkpoint" or gone or busy, "an older checkpoint was refused")
        if kind == "somebody's batch in the sink" and not may_pass:
            self.afresh("somebody wrote to the sink")

    def _made_anew(self, of: Producer) -> Path:
        """A store of the same first batch, which is another store."""
        self._made += 1
        path = self.disk.folder(f"anew {self._made}") / "source"
        with g.store(path).writer() as writer:
            for each in of.witness.batches:
                writer.append(each.events, at_us(each.cti))
        return path

    # What must hold

    def check(self) -> None:
        """What the sources and the sink hold is what was written, and what would have been written."""
        with self.disk.aside(Process("observer")):
            for each in self.producers.values():
                each.witness.look()
            self.run_ahead()
            self.run.look()

    def finish(self) -> None:
        """Close the sources, let the follower come to the end, and compare what it wrote with `collect`."""
        self._say("the end")
        overflows = self.question.sums and self._chance.random() < 0.2
        for each in self.producers.values():
            with each.writer or g.store(each.witness.path).writer() as writer:
                each.writer = None
                if overflows:
                    each.witness.tried = [Written(each.feed.draw_overflow(), each.witness.cti)]
                    writer.append(each.witness.tried[0].events)
                    each.witness.commit()
                self._advance(each, writer, MAX_TIME)
                each.witness.commit()
        while self._ends_with_an_error(overflows=overflows):
            pass
        self.check()
        self.run.finish(overflows=overflows)
        for each in self.producers.values():
            each.witness.finish()

    def _ends_with_an_error(self, *, overflows: bool) -> bool:
        """Follow to the end; whether it must be tried again."""
        run, self._follower.happened = self.run, []
        try:
            run.follow(self.witnesses, None)
        except g.GpuOpsError as error:
            if overflows and isinstance(error.__cause__ or error, g.SumOverflowError):
                self._say(f"  {type(error).__name__}: {error}")
                self.counts["overflow"] += 1
                return False
            self._follower_stopped(error, self._chance)
            self._ends += 1
            demand(self._ends < 4, f"the follower never comes to the end: {error}")
            return True
        demand(not overflows, "a sum that overflows is no error")
        return False
