"""The runner as one file. This module is not part of it."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

_PACKAGE = "llmengine_runner"
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_MAIN = f"""\
import sys

from {_PACKAGE}.__main__ import main

sys.exit(main())
"""


def build_zipapp() -> bytes:
    """A zipapp of this package's modules. The same sources give the same bytes, on any machine and at any time."""
    here = Path(__file__).parent
    content = {f"{_PACKAGE}/{path.name}": path.read_bytes() for path in here.glob("*.py") if path != Path(__file__)}
    content["__main__.py"] = _MAIN.encode()
    buffer = io.BytesIO()
    buffer.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(content):
            info = zipfile.ZipInfo(name, _EARLIEST)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, content[name])
    return buffer.getvalue()
