"""Hadoop's file systems, with the session's settings and through its gateway: places of answers, files, renames.

Hadoop decides what a path means, as it does for Spark's own readers and writers: nothing is parsed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gpu_ops.engines.spark.checks import first_line
from gpu_ops.engines.spark.swaps import AnswerPlace, Sizes
from gpu_ops.errors import SourceError

_PACKAGES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "org.apache.hadoop:hadoop-aws:{version}"),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "org.apache.hadoop:hadoop-azure:{version}"),
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
    "oss": "org.apache.hadoop:hadoop-aliyun:{version}",
}
"""The package that has a scheme's file system, for the session's version of Hadoop."""

_NOT_FOUND = "FileNotFoundException"
_MISSING = ("UnsupportedFileSystemException", "ClassNotFoundException", "NoClassDefFoundError")


@dataclass(frozen=True)
class Hadoop:
    """The file system of a path, as `gpu_ops.engines.spark.swaps.Files`.

    Attributes:
        jvm: The session's view of its JVM.
        conf: The session's settings, as Hadoop has them.
        system: Hadoop's FileSystem.
    """

    jvm: Any
    conf: Any
    system: Any

    def path(self, path: str) -> Any:
        """Hadoop's Path."""
        return self.jvm.org.apache.hadoop.fs.Path(path)

    def sizes(self, path: str) -> Sizes | None:  # noqa: D102
        with _refused(path):
            status = None
            with _unless(_NOT_FOUND):
                status = self.system.getFileStatus(self.path(path))
            if status is None:
                return None
            if status.isFile():
                return {"": status.getLen()}
            length = len(status.getPath().toString().rstrip("/")) + 1
            found: Sizes = {}
            listed = self.system.listFiles(status.getPath(), True)
            while listed.hasNext():
                each = listed.next()
                found[each.getPath().toString()[length:]] = each.getLen()
            return found

    def exists(self, path: str) -> bool:  # noqa: D102
        with _refused(path):
            return bool(self.system.exists(self.path(path)))

    def names(self, folder: str) -> list[str]:  # noqa: D102
        with _refused(folder), _unless(_NOT_FOUND):
            return [each.getPath().getName() for each in self.system.listStatus(self.path(folder))]
        return []

    def rename(self, path: str, to: str) -> bool:  # noqa: D102
        with _refused(path), _unless(_NOT_FOUND, "FileAlreadyExistsException"):
            return bool(self.system.rename(self.path(path), self.path(to)))
        return False

    def delete(self, path: str) -> None:  # noqa: D102
        with _refused(path):
            self.system.delete(self.path(path), True)

    def delete_empty(self, folder: str) -> None:  # noqa: D102
        with _refused(folder):
            if self.system.exists(self.path(folder)) and not self.names(folder):
                try:
                    self.system.delete(self.path(folder), False)
                except Py4JJavaError as error:
                    # Another writer has begun in between.
                    if not self.names(folder):
                        raise error from None

    def write(self, path: str, text: str) -> None:  # noqa: D102
        with _refused(path), closing(self.system.create(self.path(path), True)) as file:
            file.write(bytearray(text.encode()))

    def read(self, path: str) -> str | None:  # noqa: D102
        with _refused(path), _unless(_NOT_FOUND), closing(self.system.open(self.path(path))) as file:
            return bytes(file.readAllBytes()).decode()
        return None

    def parquet_footer(self, path: str) -> tuple[int, int]:
        """The numbers of rows and row groups in a Parquet file's footer."""
        with _refused(path):
            parquet = self.jvm.org.apache.parquet.hadoop
            file = parquet.util.HadoopInputFile.fromPath(self.path(path), self.conf)
            with closing(parquet.ParquetFileReader.open(file)) as reader:
                return reader.getRecordCount(), reader.getRowGroups().size()

    def shown(self, path: str) -> Path | str:
        """A path for people: a local one as such, any other as a URL."""
        uri = self.path(path).toUri()
        return Path(uri.getPath()) if self.system.getUri().getScheme() == "file" else path


def place(session: SparkSession, path: str | Path) -> AnswerPlace:
    """The place of an answer with this path.

    Args:
        session: The session.
        path: Text means what it means to Spark's own readers and writers: it may be a URL, and nothing in it is
            percent-encoded or a pattern. A `Path` is on the file system of this machine.

    Raises:
        SourceError: It is no path; the session does not have its file system; or it names a whole file system.

    Examples:
        >>> place(spark.newSession(), Path("/data/bids of #7.parquet")).path
        'file:/data/bids of #7.parquet'
    """
    if isinstance(path, Path) and not path.is_absolute() and path.parts[:1] and path.parts[0].endswith(":"):
        raise SourceError(f"{path} was a URL, and has lost a slash as a Path.", remedy="Give the URL as text.")
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001
    conf = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
    try:
        paths = jvm.org.apache.hadoop.fs.Path
        made = paths("file", None, str(path.absolute())) if isinstance(path, Path) else paths(path)
        system = made.getFileSystem(conf)
        whole = made.makeQualified(system.getUri(), system.getWorkingDirectory())
    except (Py4JJavaError, PySparkException) as error:
        raise _no_place(jvm, path, error) from error
    if whole.isRoot():
        raise SourceError(f"{whole.toString()} is a whole file system.", remedy="Give a folder in it.")
    _check_letters(jvm, whole)
    return AnswerPlace.at(Hadoop(jvm, conf, system), whole.toString())


def _no_place(jvm: Any, path: str | Path, error: Exception) -> SourceError:
    scheme = str(path).partition(":")[0]
    said = _said(error)
    if any(name in said for name in _MISSING):
        version = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        package = _PACKAGES.get(scheme.lower())
        if package is None:
            remedy = "Give the session the package that has one, and spark.hadoop.fs.SCHEME.impl if it says so."
        else:
            remedy = f"Start the session with spark.jars.packages={package.format(version=version)}"
            aws = scheme.lower() in ("s3", "s3n")
            remedy += ", and write s3a://…, which is its scheme." if aws else "."
        return SourceError(f"This Spark session has no file system for {scheme}://, of {path}.", remedy=remedy)
    return SourceError(
        f"{str(path)!r} is no path that Spark takes: {said}",
        remedy='Give a whole URL or a local path; one with a colon in its first part begins with "./".',
    )


def _check_letters(jvm: Any, path: Any) -> None:
    """Refuse a local name that this JVM cannot encode: it would write question marks."""
    name = path.toUri().getPath()
    if path.toUri().getScheme() != "file" or name.isascii():
        return
    encoding = jvm.java.lang.System.getProperty("sun.jnu.encoding")
    try:
        name.encode(encoding)
    except UnicodeEncodeError as error:
        raise SourceError(
            f"Spark's JVM writes file names in {encoding}, which lacks some letters of {name}.",
            remedy="Start it with LC_ALL=C.UTF-8 in its environment, or give a path of other letters.",
        ) from error


@contextmanager
def _refused(path: str) -> Iterator[None]:
    """Raise an error of gpu_ops for what a file system refuses."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise SourceError(
            f"{path} cannot be written or read back: {_said(error)}",
            remedy="See that there is such a place, room in it, and permission for it and for the folder around it.",
        ) from error


@contextmanager
def _unless(*names: str) -> Iterator[None]:
    """End the block at a Java exception of one of these classes."""
    try:
        yield
    except Py4JJavaError as error:
        if str(error.java_exception.getClass().getSimpleName()) not in names:
            raise


def _said(error: Exception) -> str:
    return first_line(error.java_exception.toString() if isinstance(error, Py4JJavaError) else error)
