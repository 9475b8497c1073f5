"""The files of a Spark event log as blocks of lines: their order and their compression.

This module knows nothing of events. Spark writes a log as one file (``local-1``, ``app-1.zstd``, ``app-1.inprogress``)
or, by default since 4.0, as a folder of rolling files (``eventlog_v2_app-1/events_1_app-1.zstd``), which it may later
compact into one (``events_3_app-1.zstd.compact`` replaces the files 1 to 3). Sources: Spark's
``EventLogFileWriters.scala``, ``EventLogFileReaders.scala`` and ``CompressionCodec.scala``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from gpu_ops.errors import SourceError

BLOCK_BYTES = 8 << 20
"""The size of a block of decompressed text; a longer line makes a larger block."""

_LONGEST = 1 << 28
"""The most bytes of a line: a few kilobytes of a compressed log can unpack to gigabytes."""

_EVENTS = re.compile(r"events_(\d+)_.+")
_COMPACTED = ".compact"


@dataclass(frozen=True)
class LineBlock:
    """Consecutive lines of one file.

    Attributes:
        path: The file.
        first: The number of the first line, counted from 1.
        lines: The lines, without their line ends.
        torn: Whether the block is the file's last line without a line end: Spark may have died while writing it.
    """

    path: Path
    first: int
    lines: list[bytes]
    torn: bool = False


def log_files(path: Path) -> list[Path]:
    """The files of one log, oldest first.

    Args:
        path: An event log file, a rolling log's folder, or a folder that holds exactly one log.

    Raises:
        SourceError: There is no log, there are several, or a file of a rolling log is missing.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise SourceError(f"{path} does not exist.", remedy="Give an event log file, or the folder of a rolling log.")
    here = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
    rolled = [entry for entry in here if _EVENTS.fullmatch(entry.name)]
    if rolled:
        return _rolled_files(path, rolled)
    logs = sorted(entry for entry in here if entry.is_file() or entry.name.startswith("eventlog_v2_"))
    if len(logs) == 1 and not logs[0].name.startswith("appstatus_"):
        return log_files(logs[0])
    names = ", ".join([log.name for log in logs[:5]] + ["…"] * (len(logs) > 5))
    raise SourceError(
        f"{path} is not one event log: it holds {len(logs)} files or logs{f' ({names})' if logs else ''}.",
        remedy="Give one of its files, or one folder whose name starts with eventlog_v2_.",
    )


def _rolled_files(folder: Path, files: list[Path]) -> list[Path]:
    number_of = {file: int(file.name.split("_")[1]) for file in files}
    compacted = [file for file in files if file.name.endswith(_COMPACTED)]
    base = max(compacted, key=number_of.__getitem__, default=None)
    first = 0 if base is None else number_of[base]
    later = sorted(
        (file for file in files if file not in compacted and number_of[file] > first), key=number_of.__getitem__
    )
    for expected, file in enumerate(later, start=first + 1):
        if number_of[file] != expected:
            raise SourceError(
                f"{folder} lacks the file events_{expected}_…, so its events are unknown.",
                remedy="Copy the whole folder again; Spark removes a file only after compacting it.",
            )
    return later if base is None else [base, *later]


def is_compacted(files: list[Path]) -> bool:
    """Whether Spark has compacted the log, and so dropped the tasks of finished jobs."""
    return any(file.name.endswith(_COMPACTED) for file in files)


def line_blocks(path: Path) -> Iterator[LineBlock]:
    """The lines of one file, decompressed, in blocks of about `BLOCK_BYTES`.

    Of a truncated compressed file, the readable lines are returned.

    Raises:
        SourceError: The file is damaged, or its compression is not supported.
    """
    number = 1
    parts: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        for chunk in _decompressed(path, file):
            parts.append(chunk)
            size += len(chunk)
            if size < BLOCK_BYTES or b"\n" not in chunk:
                if size > _LONGEST:
                    raise _damaged(path, file.tell(), f"line {number} or one soon after it is longer than 256 MiB")
                continue
            *lines, rest = b"".join(parts).split(b"\n")
            yield LineBlock(path, number, lines)
            number += len(lines)
            parts, size = [rest], len(rest)
    *lines, rest = b"".join(parts).split(b"\n")
    if lines:
        yield LineBlock(path, number, lines)
    if rest:
        yield LineBlock(path, number + len(lines), [rest], torn=True)


def _decompressed(path: Path, file: BinaryIO) -> Iterator[bytes]:
    # The first bytes decide, not the name: logs get renamed, and the name of an unfinished log ends in .inprogress.
    start = file.read(8)
    file.seek(0)
    for magic, decoder in _DECODERS.items():
        if start.startswith(magic):
            return decoder(path, file)
    return _plain(path, file)


def _plain(_path: Path, file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(BLOCK_BYTES):
        yield chunk


def _zstd(path: Path, file: BinaryIO) -> Iterator[bytes]:
    # pyarrow decodes zstd too, but loses up to a whole read if the last frame is truncated.
    import zstandard

    stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    try:
        while chunk := stream.read(BLOCK_BYTES):
            yield chunk
    except zstandard.ZstdError as error:
        raise _damaged(path, file.tell(), str(error)) from error


def _lz4(path: Path, file: BinaryIO) -> Iterator[bytes]:
    # lz4-java's LZ4BlockOutputStream, which is not the LZ4 frame format: magic, method, two sizes (32 MiB at most), a
    # checksum, the data. An empty block ends a stream; another stream may follow.
    header = struct.Struct("<8sBiiI")
    codec = pa.Codec("lz4_raw")
    while len(head := file.read(header.size)) == header.size:
        magic, method, compressed, size, _checksum = header.unpack(head)
        if magic != b"LZ4Block" or method & 0xF0 not in (0x10, 0x20) or not 0 <= compressed <= size <= 1 << 25:
            raise _damaged(path, file.tell(), "no block starts here")
        data = file.read(compressed)
        if len(data) < compressed:
            return
        if size:
            yield data if method & 0xF0 == 0x10 else _block(path, file, codec, data, size)


def _snappy(path: Path, file: BinaryIO) -> Iterator[bytes]:
    # snappy-java's SnappyOutputStream: a header of 16 bytes, then blocks, each after its big-endian size. Another
    # stream may follow, so a header may stand in place of a size.
    magic = 0x82534E41
    codec = pa.Codec("snappy")
    while len(head := file.read(4)) == 4:
        (compressed,) = struct.unpack(">I", head)
        if compressed == magic:
            file.read(12)
            continue
        data = file.read(compressed)
        if len(data) < compressed:
            return
        yield _block(path, file, codec, data, _snappy_size(data))


def _snappy_size(data: bytes) -> int:
    # A raw Snappy block starts with its decompressed size as a base-128 number, low digits first.
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return size


def _block(path: Path, file: BinaryIO, codec: pa.Codec, data: bytes, size: int) -> bytes:
    try:
        decoded: bytes = codec.decompress(data, decompressed_size=size, asbytes=True)
    except (OSError, MemoryError) as error:
        raise _damaged(path, file.tell(), str(error)) from error
    return decoded


def _lzf(path: Path, _file: BinaryIO) -> Iterator[bytes]:
    raise SourceError(
        f"{path} is compressed with LZF, which no maintained Python library reads.",
        remedy="Decompress it with Spark's own library: java -cp $SPARK_HOME/jars/compress-lzf-*.jar "
        "com.ning.compress.lzf.LZF -d FILE.lzf (the name must end in .lzf), or log with "
        "spark.eventLog.compression.codec=zstd.",
    )


def _damaged(path: Path, position: int, why: str) -> SourceError:
    return SourceError(
        f"{path} is damaged before byte {position}: {why}.",
        remedy="Copy the log again: only the end of an unfinished log may be incomplete.",
    )


_DECODERS: dict[bytes, Callable[[Path, BinaryIO], Iterator[bytes]]] = {
    b"\x28\xb5\x2f\xfd": _zstd,
    b"LZ4Block": _lz4,
    b"\x82SNAPPY\x00": _snappy,
    b"ZV": _lzf,
}
