"""The two log formats of TensorRT-LLM: that of its Python commands and that of its C++ runtime."""

import sys
import time

# Severities of the 1.2 command line (`--log_level`), the most severe first.
SEVERITIES = ("internal_error", "error", "warning", "info", "verbose", "debug", "trace")
_LETTERS = {
    "internal_error": "F",
    "error": "E",
    "warning": "W",
    "info": "I",
    "verbose": "V",
    "debug": "D",
    "trace": "T",
}


class CommandLog:
    """Lines such as `[11/29/2026-18:20:38] [TRT-LLM] [I] text`, on standard output as the real commands write them."""

    def __init__(self) -> None:
        self._threshold = SEVERITIES.index("info")

    def set_level(self, severity: str) -> None:
        self._threshold = SEVERITIES.index(severity)

    def write(self, severity: str, text: str, source: str = "TRT-LLM") -> None:
        if SEVERITIES.index(severity) <= self._threshold:
            stamp = time.strftime("%m/%d/%Y-%H:%M:%S")
            print(f"[{stamp}] [{source}] [{_LETTERS[severity]}] {text}", flush=True)

    def info(self, text: str, source: str = "TRT-LLM") -> None:
        self.write("info", text, source)

    def warning(self, text: str, source: str = "TRT-LLM") -> None:
        self.write("warning", text, source)

    def error(self, text: str, source: str = "TRT-LLM") -> None:
        self.write("error", text, source)


command_log = CommandLog()


def runtime_log(severity: str, text: str) -> None:
    """One line as the C++ runtime inside Triton writes it: `[TensorRT-LLM][WARNING] text`."""
    print(f"[TensorRT-LLM][{severity}] {text}", file=sys.stderr, flush=True)


def elapsed(seconds: float) -> str:
    """`HH:MM:SS`, the format of every "Total time of ..." line."""
    return time.strftime("%H:%M:%S", time.gmtime(seconds))
