"""A toolchain image of small scripts: what the runner meets, written by the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from trtllm_operator.runner.package import build_zipapp

H100 = "NVIDIA H100 80GB HBM3, GPU-11111111-2222-3333-4444-555555555555, 9.0, 81559, 590.44.01"
A100 = "NVIDIA A100-SXM4-80GB, GPU-66666666-2222-3333-4444-555555555555, 8.0, 81920, 590.44.01"
H100_CLASS = {"product": "NVIDIA-H100-80GB-HBM3", "computeCapability": "9.0"}

CHECKPOINT = """
import json, struct, sys
from pathlib import Path

def checkpoint(output, world_size=2, **changes):
    config = {
        "architecture": "LlamaForCausalLM", "dtype": "bfloat16",
        "mapping": {"world_size": world_size, "tp_size": world_size, "pp_size": 1},
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
    }
    Path(output, "config.json").write_text(json.dumps({**config, **changes}))
    header = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    for rank in range(world_size):
        Path(output, f"rank{rank}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"abcd")

def engine(output, version="1.2.1", **limits):
    config = {
        "version": version,
        "pretrained_config": {
            "dtype": "bfloat16", "mapping": {"world_size": 2, "tp_size": 2, "pp_size": 1},
            "quantization": {"quant_algo": None},
        },
        "build_config": {"max_batch_size": 8, "max_input_len": 512, "max_seq_len": 1024, "max_num_tokens": 2048,
                         "max_beam_width": 1, **limits},
    }
    Path(output, "config.json").write_text(json.dumps(config))
    for rank in range(2):
        Path(output, f"rank{rank}.engine").write_bytes(b"engine")
"""
"""For the tool scripts: what a good convert_checkpoint.py and trtllm-build leave behind, for two ranks."""


@dataclass
class Image:
    """A directory of commands in front of PATH, and a scratch directory."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bin, self.scratch = self.root / "bin", self.root / "scratch"
        self.library = self.root / "library"
        for directory in (self.bin, self.scratch, self.library):
            directory.mkdir()
        self.runner = self.root / "runner.pyz"
        self.runner.write_bytes(build_zipapp())
        self.has_library("1.2.1")
        self.has_gpus(H100)
        (self.library / "artifacts.py").write_text(CHECKPOINT)

    def has_library(self, version: str, tensorrt: str | None = None) -> None:
        """A tensorrt_llm that talks on import, as the real one does."""
        if tensorrt:
            (self.library / "tensorrt.py").write_text(f"__version__ = {tensorrt!r}\n")
        banner = f"print('[TensorRT-LLM] TensorRT-LLM version: {version}')"
        (self.library / "tensorrt_llm.py").write_text(f"__version__ = {version!r}\n{banner}\n")

    def has_gpus(self, *lines: str) -> None:
        self.command("nvidia-smi", f"print({chr(10).join(lines)!r})")

    def command(self, name: str, python: str) -> Path:
        path = self.bin / name
        path.write_text(f"#!{sys.executable}\n{textwrap.dedent(python)}")
        path.chmod(0o755)
        return path

    def start(self, step: str, spec: dict[str, Any]) -> subprocess.Popen[str]:
        path = f"{self.bin}:{os.environ['PATH']}"
        return subprocess.Popen(
            [sys.executable, self.runner, step, "--spec", json.dumps(spec), "--termination-log", self.log],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(self.library), **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def log(self) -> Path:
        return self.root / "termination-log"

    def run(self, step: str, spec: dict[str, Any]) -> tuple[int, dict[str, Any], str]:
        """Exit status, report and output of one step."""
        process = self.start(step, spec)
        output, _ = process.communicate(timeout=60)
        return process.returncode, json.loads(self.log.read_text()), output


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)
