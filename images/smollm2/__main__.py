"""`python -m images.smollm2 DIRECTORY`: write the checkpoint into a new directory."""

import sys
import tempfile
from pathlib import Path

from images.build import ROOT
from images.errors import BuildError
from images.smollm2 import make

if len(sys.argv) != 2:
    sys.exit("usage: python -m images.smollm2 DIRECTORY")
try:
    with tempfile.TemporaryDirectory() as work_directory:
        work = Path(work_directory)
        make(ROOT, Path(sys.argv[1]), work, work / "pip.log")
except BuildError as error:
    sys.exit(f"images.smollm2: {error}")
