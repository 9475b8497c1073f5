"""The log of a live query on Spark: what each epoch was begun with, and the manifest that commits it.

In the checkpoint's folder are

    back.json           to which epoch the query goes back; gone when that is done
    query.json          whose checkpoint it is; made once, before the first epoch
    spark/              Spark's own log, with the inputs (offsets) of each epoch
    begun/              a file for each epoch: its inputs and CTIs, written before anything of it runs
    epochs/             a manifest for each epoch, made by its last step: it names the results, and the states of
                        shards, which are beside it (`gpu_ops.checkpoints`). Epoch 0 has number 1
    results/            the results of sinks that have no folder of their own

Files of the log are made whole, by one of several who try, and never change.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from gpu_ops.checkpoints.manifests import Manifest, Manifests, manifest_name
from gpu_ops.checkpoints.saved_states import SavedState
from gpu_ops.core.json_kinds import ANY, TEXT, TIME, TRUTH, Kind, Many, Maybe, Object, Whole, defect
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.files import make_folder
from gpu_ops.microbatches.folders import open_folder, writing

_FORMAT = 1

_BACK_NAME = "back.json"

_FILE = Object({"name": TEXT, "size": Whole(), "rows": Whole()})
_INPUT = Object({"cti": Maybe(TIME), "latest": Maybe(TIME), "rows": Whole()}, {"said": Maybe(TIME)})
_QUERY = Object(
    {
        "format": Whole(_FORMAT, _FORMAT),
        "query": TEXT,
        "version": TEXT,
        "python": TEXT,
        "plan": Many(TEXT),
        "functions": Object(others=TEXT),
        "partitions": Whole(1),
        "sinks": Object(others=TEXT),
    },
    {"shards": Whole(1)},
)
_BACK = Object({"query": TEXT, "epoch": Whole()})
_BEGUN = Object({"query": TEXT, "epoch": Whole(), "offsets": Maybe(TEXT), "ctis": Many(Maybe(TIME))})
_COMMITTED = Object(
    {
        "offsets": Maybe(TEXT),
        "inputs": Many(_INPUT),
        "state": Many(Object({"attempt": TEXT, "saved": ANY})),
        "results": Many(_FILE),
        "late": Many(_FILE),
        "fates": Object(others=Whole()),
        "faults": Object(others=Whole()),
        "cti": TIME,
        "closed": TRUTH,
    }
)


@dataclass(frozen=True)
class NamedFile:
    """A file that a manifest names.

    Attributes:
        name: Its name in its folder.
        size: Its bytes.
        rows: How many rows it has.
    """

    name: str
    size: int
    rows: int = 0


@dataclass(frozen=True)
class QueryRecord:
    """Whose checkpoint it is: ``query.json``.

    Attributes:
        query: A random name.
        plan: The plan, in lines.
        functions: The fingerprints of the user's functions in it.
        partitions: Into how many partitions events went at first.
        sinks: The identity of each sink.
        version: The version of gpu_ops that made it.
        python: The version of Python that made it.
        shards: Of how many shards its states are; in older files of one for each partition.
    """

    query: str
    plan: Sequence[str]
    functions: dict[str, str]
    partitions: int
    sinks: dict[str, str]
    version: str
    python: str
    shards: int
    format: int = _FORMAT


@dataclass(frozen=True)
class Begun:
    """What an epoch is made of, written before anything of it runs.

    Attributes:
        query: The query.
        epoch: Its number.
        offsets: What Spark has written down of its inputs; None for the epoch that ends the query.
        ctis: The CTI of each input, in ticks; None before there is any.
    """

    query: str
    epoch: int
    offsets: str | None
    ctis: Sequence[int | None]


@dataclass(frozen=True)
class InputProgress:
    """What an epoch brought to an input.

    Attributes:
        cti: Its CTI in the epoch.
        latest: The latest start of its rows, early or late.
        rows: How many rows there were.
        said: The latest CTI among its rows.
    """

    cti: int | None
    latest: int | None
    rows: int
    said: int | None = None


@dataclass(frozen=True)
class EpochManifest:
    """A committed epoch.

    Attributes:
        query: The query.
        epoch: Its number.
        offsets: As in `Begun`.
        inputs: What it brought to each input.
        state: The state of each shard after it: the name of the attempt that saved it, and where, as JSON values.
        results: The files of its results.
        late: The files of its late rows, if they are kept.
        fates: How many rows were late, by their fate.
        faults: How many messages were dropped, by the rule that they break.
        cti: The CTI of the results: no later result starts before it.
        closed: Whether it ended the query.
    """

    query: str
    epoch: int
    offsets: str | None
    inputs: Sequence[InputProgress]
    state: Sequence[Any]
    results: Sequence[NamedFile]
    late: Sequence[NamedFile]
    fates: dict[str, int]
    faults: dict[str, int]
    cti: int
    closed: bool

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """An epoch, of its manifest.

        Raises:
            SourceError: It is that of something else.
        """
        said = dict(manifest.content)
        wrong = defect(said, _COMMITTED)
        if wrong is not None:
            raise SourceError(f"Manifest {manifest.number} is of no epoch: {wrong}.", remedy="Put back the right one.")
        said |= {name: [NamedFile(**each) for each in said[name]] for name in ("results", "late")}
        said |= {"inputs": [InputProgress(**each) for each in said["inputs"]]}
        return cls(manifest.folder, manifest.number - 1, **said)

    def to_manifest(self) -> Manifest:
        """What is committed."""
        content = asdict(self)
        query, epoch = content.pop("query"), content.pop("epoch")
        of = f"The manifest of epoch {epoch}"
        states = [SavedState.from_json(of, each["saved"]) for each in self.state]
        return Manifest(epoch + 1, query, [file for each in states for file in each.files], content)


class EpochLog:
    """The log in a folder.

    Args:
        path: The folder; it may be missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def spark(self) -> Path:
        """Spark's own log."""
        return self.path / "spark"

    @property
    def state(self) -> Path:
        """The folder of manifests and states."""
        return self.path / "epochs"

    def make(self) -> None:
        """Make the folders that are missing."""
        try:
            for name in ("begun", "epochs", "results"):
                make_folder(self.path / name)
        except OSError as error:
            raise SourceError(
                f"The checkpoint {self.path} cannot be made: {error}", remedy="See that there is room and permission."
            ) from error

    def record(self) -> QueryRecord | None:
        """Whose checkpoint it is; None if it is of no query yet."""
        said = read_json(self.path / "query.json", _QUERY)
        return None if said is None else QueryRecord(**{"shards": said["partitions"]} | said)

    def claim(self, record: QueryRecord) -> QueryRecord:
        """Make it a query's checkpoint, unless it is one already.

        Returns:
            The record that is there.
        """
        create_once(self.path / "query.json", asdict(record))
        found = self.record()
        assert found is not None  # noqa: S101  (it was there, or was made)
        return found

    def offsets(self, epoch: int) -> str | None:
        """What Spark has written down of an epoch's inputs; None if it has not."""
        try:
            return (self.spark / "offsets" / str(epoch)).read_text()
        except FileNotFoundError:
            return None

    def last(self) -> int | None:
        """The last committed epoch; None before the first."""
        numbers = self._manifests.numbers()
        return numbers[-1] - 1 if numbers else None

    def kept(self) -> list[int]:
        """The committed epochs that are kept; while the query goes back, those that will remain."""
        back = self.back()
        return [number - 1 for number in self._manifests.numbers() if back is None or number - 1 <= back]

    @property
    def _manifests(self) -> Manifests:
        return Manifests(open_folder(self.state, None))

    def begun(self, epoch: int) -> Begun | None:
        """What an epoch was begun with; None if it was not."""
        said = read_json(self._of("begun", epoch), _BEGUN)
        return None if said is None else Begun(**said)

    def begin(self, begun: Begun) -> Begun:
        """Write down what an epoch is made of, unless that was done before.

        Returns:
            What is written down.
        """
        create_once(self._of("begun", begun.epoch), asdict(begun))
        found = self.begun(begun.epoch)
        assert found is not None  # noqa: S101  (it was there, or was made)
        return found

    def committed(self, epoch: int) -> EpochManifest | None:
        """The manifest of an epoch; None if it is not committed.

        Raises:
            SourceError: It was, and is kept no longer.
        """
        manifests, number = self._manifests, epoch + 1
        numbers = manifests.numbers()
        if number in numbers:
            return EpochManifest.of(manifests.read(number))
        if numbers and number < numbers[-1]:
            raise SourceError(
                f"Epoch {epoch} is asked for, and {self.path} has committed epoch {numbers[-1] - 1}.",
                remedy="Spark's part of the checkpoint is older than the rest: put back both as of one time.",
            )
        return None

    def commit(self, manifest: EpochManifest) -> None:
        """Commit an epoch. Its files are on disk.

        Raises:
            TakenError: Another driver has been first.
        """
        self._manifests.commit(manifest.to_manifest())

    def clean(self, keep: int) -> None:
        """Remove all epochs but the newest ones, and what none of them needs.

        Files of epochs that are not committed stay: somebody may be making them.
        """
        last = self.last()
        self._manifests.clean(keep)
        with suppress(OSError):
            for each in (self.path / "begun").glob("*.json"):
                if last is not None and each.stem.isdecimal() and int(each.stem) <= last - keep:
                    each.unlink(missing_ok=True)

    def back(self) -> int | None:
        """The epoch to which the query goes back; None if it does not, or has done so."""
        said = read_json(self.path / _BACK_NAME, _BACK)
        return None if said is None else int(said["epoch"])

    def go_back(self, query: str, epoch: int) -> None:
        """Write down that the query goes back to an epoch."""
        create_once(self.path / _BACK_NAME, {"query": query, "epoch": epoch})

    def forget_after(self, epoch: int) -> None:
        """Remove what the log has of all epochs after one, Spark's part too; then that the query goes back.

        A process that ends in between leaves the latter, and whoever opens the log next begins again.

        Raises:
            SourceError: The file system refuses.
        """
        state = open_folder(self.state, None)
        with writing(state):
            state.remove(manifest_name(number) for number in self._manifests.numbers()[::-1] if number > epoch + 1)
            state.sync()
        for folder in (self.path / "begun", self.spark / "commits", self.spark / "offsets"):
            at = open_folder(folder, None)
            with writing(at):
                of = {name: name.lstrip(".").partition(".")[0] for name in at.names()}  # 7, .7.crc; 000000000007.json
                at.remove(name for name, number in of.items() if number.isdecimal() and int(number) > epoch)
                if folder.is_dir():
                    at.sync()
        top = open_folder(self.path, None)
        with writing(top):
            top.remove([_BACK_NAME])
            top.sync()

    def _of(self, folder: str, epoch: int) -> Path:
        return self.path / folder / f"{epoch:012d}.json"


def create_once(path: Path, said: dict[str, Any]) -> bool:
    """Make a file of JSON, whole and lasting, that nobody has made: of two who try at once, one does.

    Returns:
        Whether this call made it.

    Raises:
        SourceError: The file system refuses, or has no way to tell one of two writers that it came second.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "0.json"
        >>> create_once(path, {"n": 1}), create_once(path, {"n": 2}), path.read_text()
        (True, False, '{"n": 1}')
    """
    folder = open_folder(path.parent, None)
    with writing(folder):
        try:
            folder.publish(path.name, json.dumps(said).encode())
        except FileExistsError:
            return False
    return True


def read_json(path: Path, kind: Kind) -> Any:
    """What a file of JSON holds; None if it is not there.

    Raises:
        SourceError: It is damaged.
    """
    try:
        said = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(
            f"{path} cannot be read: {error}", remedy="Put back what was there, or start the query afresh."
        ) from error
    wrong = defect(said, kind)
    if wrong is not None:
        raise SourceError(f"{path} is damaged: {wrong}.", remedy="Put back what was there, or start the query afresh.")
    return said


def age(name: str) -> int | None:
    """The epoch for which a file of state or results was written, by its name; None if it is none of these.

    Examples:
        >>> age("000000000007-00001-5f3a.parquet"), age(".000000000007-00001-5f3a.checkpoint.9c.tmp"), age("x.parquet")
        (7, 7, None)
    """
    head, _, rest = name.lstrip(".").partition("-")
    return int(head) if rest and len(head) == 12 and head.isdecimal() else None
