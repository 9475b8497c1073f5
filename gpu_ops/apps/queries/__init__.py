"""Query files: Python files that define ``query(**inputs)``. The ``gpu_ops`` command and a Spark job run them.

The command passes paths as inputs, and the Spark job passes DataFrames. The function calls `gpu_ops.events` on each
input and returns a `Stream`, or a dict of streams by name, so one file runs in both places. The modules of this package
are query files over the tables that `gpu_ops.apps.spark_event_log` makes of Spark's event log.
"""

from __future__ import annotations

import inspect
import runpy
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from gpu_ops.api.stream import Stream
from gpu_ops.errors import GpuOpsError, PlanError


def parse_inputs(texts: Iterable[str], option: str = "--input") -> dict[str, str]:
    """Inputs by name, from texts ``NAME=PATH``.

    Args:
        texts: The texts.
        option: The option that they were given by.

    Raises:
        PlanError: A text does not have this form, or a name is given twice.

    Examples:
        >>> parse_inputs(["tasks=logs/tasks.parquet", "cores=logs/cores.parquet"])
        {'tasks': 'logs/tasks.parquet', 'cores': 'logs/cores.parquet'}
    """
    inputs: dict[str, str] = {}
    for text in texts:
        name, separator, path = text.partition("=")
        if not (separator and path and name.isidentifier()):
            raise PlanError(
                f"{option} {text!r} is not NAME=PATH.", remedy=f"Write for instance {option} tasks=tasks.parquet."
            )
        if name in inputs:
            raise PlanError(f"{option} {name} is given twice.", remedy="Give each input once; a path may be a glob.")
        inputs[name] = path
    return inputs


def query_answers(path: str | Path, inputs: Mapping[str, Any]) -> Stream | dict[str, Stream]:
    r"""Call a query file's ``query`` with the inputs. It returns a stream, or several by name; nothing is computed yet.

    Args:
        path: The Python file.
        inputs: The arguments of ``query``, by name.

    Raises:
        PlanError: The file is missing or fails, ``query`` fails or has other parameters, or it returns no stream.

    Examples:
        >>> import pathlib, tempfile
        >>> import pyarrow as pa
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "starts.py")
        ...     _ = file.write_text(
        ...         "import gpu_ops as g\ndef query(rides): return g.events(rides, start='at', unit='s')"
        ...     )
        ...     query_answers(file, {"rides": pa.table({"at": [7], "zone": ["A"]})})
        <Stream [zone: string]>
    """
    file = Path(path)
    if not file.is_file():
        raise PlanError(
            f"The query file {file} does not exist.", remedy="Give a Python file that defines query(**inputs)."
        )
    try:
        query = runpy.run_path(str(file)).get("query")
    except Exception as error:
        raise _failed(file, error) from error
    if not callable(query):
        raise PlanError(
            f"{file} defines no function query.", remedy="Write def query(tasks): return g.events(tasks, …)…."
        )
    signature = inspect.signature(query)
    try:
        signature.bind(**inputs)
    except TypeError as error:
        raise PlanError(
            f"{file}: query{signature} does not fit the inputs {', '.join(inputs) or '(none)'}: {error}.",
            remedy="Give --input NAME=PATH for each parameter of query without a default.",
        ) from error
    try:
        answers = query(**inputs)
    except GpuOpsError:
        raise
    except Exception as error:
        raise _failed(file, error) from error
    several = isinstance(answers, dict) and answers and all(isinstance(each, Stream) for each in answers.values())
    if not (several or isinstance(answers, Stream)):
        raise PlanError(
            f"{file}: query returns a {type(answers).__name__}, not a Stream.",
            remedy="Return the last stream, or a dict of streams by name.",
        )
    return cast("Stream | dict[str, Stream]", answers)


def _failed(file: Path, error: Exception) -> PlanError:
    # A file with a syntax error has no frame in the traceback.
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    place = f"{file}, line {line}" if line else str(file)
    what = error.msg if isinstance(error, SyntaxError) else error
    return PlanError(f"{place}: {type(error).__name__}: {what}", remedy="Correct the query file.")
