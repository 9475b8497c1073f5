"""Makes what a cluster is sent.

    python spark_conf/package.py FOLDER                          FOLDER/gpu_ops.zip, for --py-files
    python spark_conf/package.py FOLDER --environment cpu        and FOLDER/environment.tar.gz, for --archives
    python spark_conf/package.py FOLDER --environment gpu-cu13   the same, for workers with GPUs

The zip file is the package without what it depends on. The environment is a virtual environment with all of it but
PySpark, which a cluster brings. It has no Python of its own: each machine needs the one that it was made with, at the
same path.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
ZIP = "gpu_ops.zip"
ENVIRONMENT = "environment.tar.gz"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="package.py", description="Make what a cluster is sent.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where it is put")
    parser.add_argument("--environment", choices=["cpu", "gpu-cu12", "gpu-cu13"], help=f"make {ENVIRONMENT} too")
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    print(zip_package(asked.folder / ZIP))
    if asked.environment:
        try:
            print(pack_environment(asked.folder / ENVIRONMENT, asked.environment))
        except subprocess.CalledProcessError as error:  # uv has said why
            return error.returncode
    return 0


def zip_package(path: Path) -> Path:
    """The package's sources alone; what Python and Numba compiled of them belongs to this machine."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted((ROOT / "gpu_ops").rglob("*.py")):
            archive.write(source, source.relative_to(ROOT))
    return path


def pack_environment(path: Path, workers: str) -> Path:
    """An environment for workers with this Python; its other paths are relative.

    Raises:
        subprocess.CalledProcessError: uv could not make it.
    """
    package, pinned = str(ROOT), ["--constraints", str(ROOT / "requirements" / "dev.txt")]
    if workers != "cpu":  # cuDF wants other versions than the lock's
        package, pinned = f"{ROOT}[{workers}]", []
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "environment"
        _uv("venv", "--relocatable", "--python", sys.executable, str(made))
        # Without pandas PySpark passes no Arrow batches to a function.
        _uv("pip", "install", "--compile-bytecode", "--python", str(made), *pinned, package, "pandas>=2.2")
        with tarfile.open(path, "w:gz", compresslevel=1) as archive:
            archive.add(made, arcname=".")
    return path


def _uv(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "uv", "--quiet", *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main())
