"""The ``gpu_ops`` command: it reports on a Spark application, and runs or explains query files."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from gpu_ops.apps.options import (
    TOPIC,
    Delay,
    Followed,
    IfExists,
    Inputs,
    Kept,
    Late,
    On,
    Patience,
    QueryFile,
)
from gpu_ops.core.own_errors import translated
from gpu_ops.core.time import positive_ticks, ticks
from gpu_ops.errors import GpuOpsError, PlanError, SourceError

if TYPE_CHECKING:
    from gpu_ops.api.stream import Stream
    from gpu_ops.engines.live.fingerprints import IfFunctionsChanged
    from gpu_ops.engines.live.status import Status
    from gpu_ops.microbatches.stores import Store
    from gpu_ops.topics.topic import Topic

_UsageError: Any = typer.BadParameter.__base__


class _Commands(TyperGroup):
    """The commands. A wrong call prints one line, like any other error."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *more: Any, **options: Any) -> Any:
        given = sys.argv[1:] if args is None else list(args)
        if not given or not options.get("standalone_mode", True):
            return super().main(args, prog_name, *more, **options)
        try:
            code = super().main(given, prog_name, *more, **options | {"standalone_mode": False})
        except _UsageError as error:
            command = "gpu_ops" if error.ctx is None else error.ctx.command_path
            problem = error.format_message().strip().rstrip(".")
            _say_error(f"{problem}. {command} --help lists the options.")
            code = error.exit_code
        sys.exit(code)


app = typer.Typer(
    cls=_Commands,
    help="Questions about events in time.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


@contextmanager
def _readable_errors() -> Iterator[None]:
    """End the command with a message instead of a traceback if the input or the query is wrong."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        said = error if isinstance(error, OSError) else translated(error, _readable_errors, "The command") or error
        _say_error(str(said) if isinstance(said, GpuOpsError | OSError) else f"{type(said).__name__}: {said}")
        raise typer.Exit(1) from error


def _say(text: str) -> None:
    Console(stderr=True).print(text, highlight=False, soft_wrap=True)


def _say_error(text: str) -> None:
    _say(f"[bold red]error:[/] {escape(text)}")


@app.command("spark-log")
def spark_log(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="An event log of Spark 3.5 or 4: a file, or a folder of rolling files."),
    ],
    *,
    output: Annotated[Path | None, typer.Option(help="The folder for the tables and the answers, as Parquet.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the timeline to this file, such as timeline.png.")] = None,
    window: Annotated[str, typer.Option(help="The length of a window of shuffled bytes.")] = "10s",
    every: Annotated[str, typer.Option(help="The time between the starts of two windows.")] = "5s",
    device: On = "auto",
) -> None:
    """Report on a Spark application: its concurrent tasks, idle cores and shuffled bytes.

    A task's shuffled bytes count when the task ends, since Spark reports them then.
    """
    from gpu_ops.apps.queries import idle_cores, running_tasks, shuffled_bytes
    from gpu_ops.apps.spark_event_log import SparkLog
    from gpu_ops.apps.spark_report import SparkReport

    with _readable_errors():
        if picture is not None:
            _check_picture(picture)
        # Before the log is read: reading may take long.
        positive_ticks(window, name="--window")
        positive_ticks(every, name="--every")
        log = SparkLog(path)
        with nullcontext(output) if output is not None else tempfile.TemporaryDirectory(prefix="gpu_ops-") as place:
            folder = Path(place)
            with Console(stderr=True).status(f"Reading {escape(str(path))}"):
                log.write(folder)
            tasks, cores = str(folder / "tasks.parquet"), str(folder / "cores.parquet")
            answers = {
                "running_tasks": running_tasks.query(tasks),
                "idle_cores": idle_cores.query(cores),
                "shuffled_bytes": shuffled_bytes.query(tasks, size=window, every=every),
            }
            for name, answer in answers.items():
                answer.write(folder / f"{name}.parquet", device=device, if_exists="replace")
            report = SparkReport(log, folder, window, every)
            report.print(Console())
            if picture is not None:
                picture.parent.mkdir(parents=True, exist_ok=True)
                report.draw().savefig(picture, dpi=150)
        for what, where in (("tables", output), ("picture", picture)):
            if where is not None:
                _say(f"{what}: {escape(str(where))}")


@app.command()
def run(
    query: QueryFile,
    *,
    output: Annotated[
        str,
        typer.Option(
            help="The file for the answer: .parquet, .arrow, .ipc or .feather; a folder for several answers. "
            f"With --follow, the folder of a store, or {TOPIC}."
        ),
    ],
    inputs: Inputs = [],  # noqa: B006  (Typer copies it)
    follow: Followed = [],  # noqa: B006  (Typer copies it)
    late: Late = None,
    checkpoint: Kept = None,
    every: Annotated[
        str | None,
        typer.Option(help="With --checkpoint: the number of batches between two checkpoints, or the time (10s)."),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(help="With --checkpoint: keep this number of checkpoints, the older ones as FILE.1, FILE.2 …"),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="With --follow: accept stores other than the checkpoint's, such as a backup."),
    ] = False,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="With --checkpoint: resume although functions in QUERY.py changed.")
    ] = False,
    timeout: Patience = None,
    if_exists: Annotated[IfExists | None, typer.Option(help="If --output exists: fail (raise), or replace it.")] = None,
    device: On = "auto",
) -> None:
    """Run a query file here: once over the whole input, or live. spark_conf/job.py runs the same file on Spark.

    With --follow, SIGTERM and SIGINT (Ctrl-C) finish the current batch and write the checkpoint; the exit code is then
    143 or 130.
    """
    from gpu_ops.apps.places import followed_at, refuse_topic, sources_at
    from gpu_ops.apps.queries import query_answers

    with _readable_errors():
        given = sources_at(inputs)
        checkpointed = {"--every": every, "--keep": keep, "--accept-changes": accept_changes or None}
        followed = {"--late": late, "--checkpoint": checkpoint, "--adopt": adopt or None, "--timeout": timeout}
        if checkpoint is None:
            _refuse(checkpointed, "--checkpoint", "--checkpoint FILE")
        if follow:
            if if_exists is not None:
                raise PlanError(
                    "--if-exists is for a file, but with --follow, --output is a store or a topic.",
                    remedy="Leave --if-exists out.",
                )
            if timeout is not None:
                ticks(timeout, name="--timeout")
            care = _Care(checkpoint, every, keep, adopt, accept_changes)
            sources = followed_at(follow)
            _follow(query_answers(query, {**given, **sources}), sources, output, late, care, timeout, device)
            return
        _refuse(followed, "--follow", "--follow NAME=STORE")
        refuse_topic(output)
        answers = query_answers(query, given)
        place = Path(output)
        if isinstance(answers, dict):
            streams = {place / f"{name}.parquet": stream for name, stream in answers.items()}
        else:
            streams = {place: answers}
        replaces: Literal["raise", "replace"] = "replace" if if_exists is IfExists.replaced else "raise"
        if replaces == "raise":
            # Before the first answer is computed, which may take long.
            _refuse_existing(streams)
        if isinstance(answers, dict):
            place.mkdir(parents=True, exist_ok=True)
        for path, stream in streams.items():
            written = stream.write(path, device=device, if_exists=replaces)
            _say(f"{written.rows:,} rows: {escape(str(path))}")


def _refuse_existing(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.exists():
            raise SourceError(f"{path} exists.", remedy="Pass --if-exists replace, or another --output.")


def _refuse(options: Mapping[str, object], needed: str, shown: str) -> None:
    for name, given in options.items():
        if given is not None:
            raise PlanError(f"{name} needs {needed}.", remedy=f"Add {shown}, or leave {name} out.")


class _Care(NamedTuple):
    """The checkpoint's options."""

    checkpoint: Path | None
    every: str | None
    keep: int | None
    adopt: bool
    accept_changes: bool


def _follow(
    answer: Stream | dict[str, Stream],
    sources: Mapping[str, Store | Topic],
    output: str,
    late: str | None,
    care: _Care,
    timeout: str | None,
    device: str,
) -> None:
    from gpu_ops.api.events import restore
    from gpu_ops.api.stream import Stream
    from gpu_ops.apps.places import kept_at
    from gpu_ops.engines.live.running_query import RunningQuery
    from gpu_ops.engines.live.saving import is_kept

    if not isinstance(answer, Stream):
        raise PlanError("A live query returns one stream.", remedy="Write a query file for each answer.")
    if care.checkpoint is not None and is_kept(care.checkpoint):
        changed: IfFunctionsChanged = "accept" if care.accept_changes else "raise"
        live = restore(care.checkpoint, answer, device=device, if_functions_changed=changed)
    else:
        live = answer.start(device=device)
    every = "100" if care.every is None else care.every
    messages = Console(stderr=True)
    with messages.status("waiting for the first batch") as line:

        def show(running: RunningQuery) -> None:
            line.update(_shown(running.status()))

        several: Any = sources
        status = live.follow(
            several if len(sources) > 1 else next(iter(several.values())),
            into=kept_at(output),
            late_into=None if late is None else kept_at(late),
            checkpoint=care.checkpoint,
            every=int(every) if every.strip().lstrip("-").isdecimal() else every,
            keep=1 if care.keep is None else care.keep,
            timeout=timeout,
            on_step=show if messages.is_terminal else None,
            stop_on=(signal.SIGTERM, signal.SIGINT),
            if_other_store="adopt" if care.adopt else "raise",
        )
    _say(_shown(status))


def _shown(status: Status) -> str:
    return escape(str(status).removeprefix("<Status ").removesuffix(">"))


@app.command()
def explain(query: QueryFile, *, inputs: Inputs, device: On = "auto") -> None:
    """Print a query file's plan: where each part runs, and why."""
    from gpu_ops.apps.places import sources_at
    from gpu_ops.apps.queries import query_answers

    with _readable_errors():
        answers = query_answers(query, sources_at(inputs))
        if isinstance(answers, dict):
            plans = [f"{name}:\n{stream.explain(device=device)}" for name, stream in answers.items()]
        else:
            plans = [answers.explain(device=device)]
        print("\n\n".join(plans))  # noqa: T201


@app.command()
def epl(
    statements: Annotated[Path, typer.Argument(metavar="FILE", help="A file of statements in EPL.")],
    *,
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input", metavar="TYPE=PATH", help=f"The events of a type, or {TOPIC}; repeat the option for each."
        ),
    ] = [],  # noqa: B006  (Typer copies it)
    time: Annotated[
        str | None, typer.Option(help="The column that says when an event comes; the clock goes along with it.")
    ] = None,
    start: Annotated[
        str, typer.Option(help="What the clock shows first: milliseconds since 1970, or 2020-01-01T00:00:00Z.")
    ] = "0",
    until: Annotated[str | None, typer.Option(help="What the clock shows last.")] = None,
    irstream: Annotated[
        bool, typer.Option("--irstream", help="Give old rows too where a statement says nothing of it.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            help="The folder for a Parquet file for each statement; else lines of JSON are printed. "
            f"With --follow, the folder of a store, or {TOPIC}."
        ),
    ] = None,
    if_exists: Annotated[
        IfExists | None, typer.Option(help="If a file in --output exists: fail (raise), or replace it.")
    ] = None,
    follow: Followed = [],  # noqa: B006  (Typer copies it)
    order: Annotated[
        str | None, typer.Option(help="With --follow: the column that orders events of one type and time.")
    ] = None,
    delay: Delay = None,
    late: Late = None,
    checkpoint: Kept = None,
    timeout: Patience = None,
    device: On = "cpu",
) -> None:
    """Run statements in EPL over files of events or topics, and print or write what they deliver; or live.

    With --follow the last statement runs, and the others feed it.
    """
    from gpu_ops.apps.epl_files import clock_time, lines, played, text_of, write_deliveries
    from gpu_ops.apps.places import arriving, followed_at, refuse_topic, sources_at
    from gpu_ops.epl.query import query

    with _readable_errors():
        selector, first = "irstream" if irstream else "istream", clock_time(start, "--start")
        if output is None:
            _refuse({"--if-exists": if_exists, "--follow": follow or None}, "--output", "--output FOLDER")
        elif follow:
            alone = {"--input": inputs or None, "--until": until, "--if-exists": if_exists}
            _refuse(alone, "data at rest, and --follow is live", "--input TYPE=PATH instead of --follow")
            sources = followed_at(follow)
            streams = arriving(sources, time=time, delay=delay or "0s", diverts=late is not None)
            answer = query(text_of(statements), streams, order=order, start=first, default_selector=selector)
            _follow(answer, sources, output, late, _Care(checkpoint, None, None, False, False), timeout, device)
            return
        else:
            refuse_topic(output)
        live = {"--order": order, "--delay": delay, "--late": late, "--checkpoint": checkpoint, "--timeout": timeout}
        _refuse(live, "--follow", "--follow TYPE=STORE")
        if not inputs:
            raise PlanError("There are no events.", remedy="Add --input TYPE=PATH for each type.")
        runtime = played(
            text_of(statements),
            sources_at(inputs),
            time=time,
            start=first,
            until=None if until is None else clock_time(until, "--until"),
            default_selector=selector,
            device=device,
        )
        if output is None:
            for line in lines(runtime):
                print(line)  # noqa: T201
        else:
            for written in write_deliveries(runtime, Path(output), "raise" if if_exists is None else if_exists.value):
                _say(f"{written.rows:,} rows: {escape(str(written.path))}")


@app.command()
def rql(
    query: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file with a query in RQL, StreamCruncher's language.")
    ],
    *,
    time: Annotated[
        str | None, typer.Option(help="The column that says when an event comes; a store needs none.")
    ] = None,
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input", metavar="STREAM=PATH", help=f"The events of a stream, or {TOPIC}; repeat the option for each."
        ),
    ] = [],  # noqa: B006  (Typer copies it)
    tables: Annotated[
        list[str],
        typer.Option("--table", metavar="TABLE=PATH", help="The rows of a table; repeat the option for each."),
    ] = [],  # noqa: B006  (Typer copies it)
    order: Annotated[str | None, typer.Option(help="The column that orders events of one time.")] = None,
    until: Annotated[str | None, typer.Option(help="The last time of which cycles are shown.")] = None,
    output: Annotated[
        str | None,
        typer.Option(
            help="The Parquet file to write; else lines of JSON are printed. "
            f"With --follow, the folder of a store, or {TOPIC}."
        ),
    ] = None,
    if_exists: Annotated[IfExists | None, typer.Option(help="If --output exists: fail (raise), or replace it.")] = None,
    follow: Followed = [],  # noqa: B006  (Typer copies it)
    delay: Delay = None,
    late: Late = None,
    checkpoint: Kept = None,
    timeout: Patience = None,
    device: On = "cpu",
) -> None:
    """Run a query in StreamCruncher's language over files of events or topics, and print or write its rows; or live."""
    from gpu_ops.apps.places import arriving, followed_at, refuse_topic, sources_at
    from gpu_ops.apps.rql_files import asked_live, asked_of_files, query_in
    from gpu_ops.core.polars_frames import to_frame

    with _readable_errors():
        known = sources_at(tables)
        if output is None:
            _refuse({"--if-exists": if_exists, "--follow": follow or None}, "--output", "--output PATH")
        elif follow:
            alone = {"--input": inputs or None, "--until": until, "--if-exists": if_exists}
            _refuse(alone, "data at rest, and --follow is live", "--input STREAM=PATH instead of --follow")
            sources = followed_at(follow)
            streams = arriving(sources, time=time, delay=delay or "0s", diverts=late is not None)
            live = asked_live(query_in(query), streams, known, order=order)
            _follow(live, sources, output, late, _Care(checkpoint, None, None, False, False), timeout, device)
            return
        else:
            refuse_topic(output)
        followed = {"--delay": delay, "--late": late, "--checkpoint": checkpoint, "--timeout": timeout}
        _refuse(followed, "--follow", "--follow STREAM=STORE")
        if not inputs:
            raise PlanError("There are no events.", remedy="Add --input STREAM=PATH for each stream.")
        if time is None:
            raise PlanError("Nothing says when events come.", remedy="Name the column that does: --time at.")
        answer = asked_of_files(query_in(query), sources_at(inputs), known, time=time, order=order, until=until)
        if output is None:
            print(to_frame(answer.collect(device=device)).write_ndjson(), end="")  # noqa: T201
        else:
            written = answer.write(output, device=device, if_exists="raise" if if_exists is None else if_exists.value)
            _say(f"{written.rows:,} rows: {escape(str(written.path))}")


def _check_picture(picture: Path) -> None:
    from gpu_ops.plot import need_matplotlib

    need_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if picture.suffix.removeprefix(".").lower() not in known:
        raise PlanError(
            f"--picture {str(picture)!r} has no known picture format.",
            remedy=f"Choose a name that ends in {', '.join(f'.{name}' for name in sorted(known))}.",
        )
