"""Builds the package with the standard library alone: as backend of pip and build, or as `python3 backend.py DIRECTORY`."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, Optional

HERE = Path(__file__).resolve().parent
VERSION = re.findall(r'__version__ = "(.+)"', (HERE / "poolcounter/__init__.py").read_text())[0]
STEM = f"poolcounter-{VERSION}"
METADATA = f"""\
Metadata-Version: 2.1
Name: poolcounter
Version: {VERSION}
Summary: Locks and members of pools that a fleet shares: a client of PoolCounter daemons
License: MIT OR Apache-2.0
Requires-Python: >=3.9
Classifier: Framework :: Pytest
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

"""
WHEEL = "Wheel-Version: 1.0\nGenerator: poolcounter\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
ENTRY_POINTS = "[pytest11]\npoolcounter = poolcounter.pytest_plugin\n"


def package() -> Dict[str, bytes]:
    """Returns the files of the package by path."""
    files = sorted(path for path in (HERE / "poolcounter").iterdir() if path.suffix == ".py" or path.name == "py.typed")
    return {f"poolcounter/{path.name}": path.read_bytes() for path in files}


def metadata() -> bytes:
    return METADATA.encode() + (HERE / "README.md").read_bytes()


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None) -> str:
    name = f"{STEM}-py3-none-any.whl"
    info = f"{STEM}.dist-info"
    files = package()
    files[f"{info}/METADATA"] = metadata()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    files[f"{info}/entry_points.txt"] = ENTRY_POINTS.encode()
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            # A fixed date makes the build reproducible.
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
    return name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    name = f"{STEM}.tar.gz"
    files = package()
    files["PKG-INFO"] = metadata()
    for path in ["README.md", "RECIPES.md", "backend.py", "pyproject.toml"]:
        files[path] = (HERE / path).read_bytes()
    tests = sorted((HERE / "tests").glob("*.py"))
    files.update({f"tests/{path.name}": path.read_bytes() for path in tests})
    with open(Path(sdist_directory) / name, "wb") as file:
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            for path, content in files.items():
                entry = tarfile.TarInfo(f"{STEM}/{path}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return name


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    directory.mkdir(parents=True, exist_ok=True)
    for built in (build_sdist(str(directory)), build_wheel(str(directory))):
        print(directory / built)
