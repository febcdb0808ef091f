"""`python -m testbed.smollm2 DIRECTORY`: write the checkpoint into a new directory."""

import sys
import tempfile
from pathlib import Path

from testbed.images.build import ROOT
from testbed.images.errors import BuildError
from testbed.smollm2 import make

if len(sys.argv) != 2:
    sys.exit("usage: python -m testbed.smollm2 DIRECTORY")
try:
    with tempfile.TemporaryDirectory() as work_directory:
        work = Path(work_directory)
        make(ROOT, Path(sys.argv[1]), work, work / "pip.log")
except BuildError as error:
    sys.exit(f"testbed.smollm2: {error}")
