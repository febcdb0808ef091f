"""From how a tool ended to what a person is told. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .child import Outcome
from .memory import HostMemory, gib
from .report import StepError

_ARGPARSE = re.compile(r"^\S+: error: (?P<what>.+)$")
_LAST_LINES = 4
_LINE_CHARACTERS = 400
_NOISE = re.compile(r"^\s*(\^+|~+|File \".*|warnings\.warn.*|\|.*|\+[-+]+.*|.*\d+%\|.*)?\s*$")
_TRITON_PREFIX = re.compile(r"^[EWI]\d{4} \S+ \d+ \S+\] ")
_BACKEND_STACK = re.compile(r"\\n\\nAt:.*$")
"""Where the Python backend's exceptions were raised: written into the line, of no use to who applied the object."""
_TRITON_NOISE = re.compile(r"CudaDriverHelper has not been initialized")
_NAMES_THE_MODEL = re.compile(r"failed to load '")
_SPEAKS_OF_AN_ERROR = re.compile(r"^(\w+\.)*\w*(Error|Exception)\b|\[E\]|\[ERROR\]|\berror\b", re.IGNORECASE)


@dataclass(frozen=True)
class _Pattern:
    reason: str
    pattern: re.Pattern[str]
    advice: Callable[[re.Match[str]], str]


def _requested(match: re.Match[str]) -> str:
    size = match.groupdict().get("bytes")
    asked = f" One allocation asked for {int(size)} bytes ({gib(int(size))})." if size else ""
    return (
        f"The GPU's memory ran out.{asked} Lower budgets.maxBatchSize, budgets.maxNumTokens or budgets.maxSeqLen, "
        "raise parallelism, or build on a GPU of the same compute capability with more memory."
    )


def _patterns(*table: tuple[str, str, str | Callable[[re.Match[str]], str]]) -> tuple[_Pattern, ...]:
    def constant(text: str) -> Callable[[re.Match[str]], str]:
        return lambda _match: text

    return tuple(
        _Pattern(reason, re.compile(pattern), advice if callable(advice) else constant(advice))
        for reason, pattern, advice in table
    )


_KNOWN = _patterns(
    (
        "DiskFull",
        r"No space left on device|\[Errno 28\]|\bENOSPC\b",
        "The node's disk is full. Request ephemeral-storage in spec.build.resources, so that one with room is chosen.",
    ),
    (
        "EngineMismatch",
        r"incompatible device, expecting compute",
        "The engine was built for another compute capability than this GPU has.",
    ),
    (
        "PrecisionUnsupported",
        r"Networks? with FP8 precision require|requires? hardware with FP8 support",
        "The GPU has no FP8: it comes with compute capability 8.9 and later. Choose another precision.quantization.",
    ),
    (
        "GpuMemoryExhausted",
        r"Requested amount of GPU memory \((?P<bytes>\d+) bytes\) could not be allocated",
        _requested,
    ),
    (
        "GpuMemoryExhausted",
        r"virtualMemoryBuffer.*OutOfMemory|CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError"
        r"|cudaErrorMemoryAllocation|CUDA error: out of memory|Error Code 2: OutOfMemory"
        r"|Failed to allocate memory for weights",
        _requested,
    ),
    (
        "PrecisionUnsupported",
        r"pre SM 80 GPUs do not support bfloat16",
        "The GPU has no bfloat16: it comes with compute capability 8.0. Set precision.dtype float16.",
    ),
    (
        "DriverTooOld",
        r"CUDA driver version is insufficient|cudaErrorInsufficientDriver|forward compatibility was attempted on non",
        "The node's driver is older than this image's CUDA needs. Upgrade it, or take an older release.",
    ),
    (
        "GpuUnhealthy",
        r"uncorrectable ECC error|cudaErrorECCUncorrectable|fallen off the bus|NVRM: Xid|CUDA_ERROR_ECC"
        r"|Unable to determine the device handle",
        "The GPU failed. See the node's kernel log for NVRM: Xid, and take the GPU out of use.",
    ),
    (
        "KernelMissing",
        r"FMHA kernels are not found|[Nn]o valid (weight only|GEMM) kernel|can ?not find .* kernel",
        "There is no kernel for this combination on this GPU. Choose another precision.kvCache or quantization.",
    ),
    (
        "PluginMismatch",
        r"could not find any supported formats consistent with input/output data types",
        "A plugin's type differs from the model's, or memory was short. Leave plugin types at auto, or lower budgets.",
    ),
    (
        "PluginMismatch",
        r"Paged Context FMHA doesn't work with|FP8 Paged Context FMHA only works",
        "The type of the KV cache excludes paged context FMHA with these weights. Choose another precision.kvCache.",
    ),
    (
        "NoPeerAccess",
        r"peer access is not supported between|Can't enable access between nodes",
        "The GPUs cannot reach each other directly: use GPUs with NVLink, or parallelism 1.",
    ),
    (
        "CheckpointBroken",
        r"Required but not provided tensors|Expected but not provided tensors|Error while deserializing header"
        r"|SafetensorError|does not match the (expected|loaded) shape",
        "The checkpoint lacks tensors or has other ones. Delete its EngineArtifact, and it is made again.",
    ),
    (
        "CalibrationUnavailable",
        r"Couldn't reach .* on the Hub|ConnectionError: .*(dataset|Hub)|holds no \.txt, \.json or \.jsonl samples",
        "The calibration data cannot be read. Name a directory of a claim in precision.calibration.dataset.",
    ),
    (
        "GpuUnsupported",
        r"Assertion failed: Unsupported architecture|no kernel image is available for execution on the device",
        "This release has no kernels for this GPU.",
    ),
    (
        "ArchitectureUnsupported",
        r"Unsupported model architecture|is not supported by this (script|converter)",
        "This release has no engine for the model's architecture.",
    ),
    (
        "VersionMismatch",
        r"Version tag does not match|kSERIALIZATION_VERSION",
        "The engine was built by another TensorRT than the one that loads it.",
    ),
    (
        "WorldSizeMismatch",
        r"MPI size \d+ != TP size|(tensor|pipeline|[Cc]ontext) parallelism mismatch",
        "The engine's ranks and the processes that serve it do not match.",
    ),
    (
        "SharedMemoryExhausted",
        r"Unable to initialize shared memory key|Failed to initialize Python stub.*shared memory",
        "The shared memory (/dev/shm) is too small for the Python backend.",
    ),
    (
        "EngineCorrupted",
        r"Failed to deserialize cuda engine|Error opening engine file|has no config\.json|parse_error\.101",
        "The engine's files cannot be read.",
    ),
    (
        "TokenizerMissing",
        r"is not a local folder and is not a valid model identifier|Tokenizer class \w+ does not exist",
        "The tokenizer cannot be loaded from the model's files.",
    ),
    (
        "TemplateMismatch",
        r"failed to read text proto|Error parsing text-format inference\.ModelConfig",
        "Triton cannot parse the rendered configuration.",
    ),
)
"""First match decides. A cause stands before what it leads to."""

_NOT_WHEN_BUILDING = frozenset(
    {"EngineCorrupted", "EngineMismatch", "WorldSizeMismatch", "TokenizerMissing", "TemplateMismatch"}
)
_RETRYABLE = frozenset({"GpuUnhealthy"})
_CRASHES = frozenset({signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV})
_EXCERPT_LINES = 20


def speaks_of_an_error(line: str) -> bool:
    """Whether a line of a log is worth keeping when the rest is not."""
    return bool(re.match(r"^E\d{4} ", line) or re.search(r"\[E\]|\[ERROR\]|Error Code \d|\bUNAVAILABLE\b", line))


def last_words(lines: Sequence[str]) -> str:
    """The few lines that say why: the last that name an error, else the last that say anything."""
    said = [_plain(line) for line in lines if not _NOISE.match(line)]
    errors = [line for line in said if _SPEAKS_OF_AN_ERROR.search(line)]
    return "; ".join((errors or said)[-_LAST_LINES:]) or "it printed nothing"


def load_errors(lines: Sequence[str]) -> str:
    """Why models did not load: the lines that name one where there are such, else the first errors. The first is the
    cause; ensembles that miss the model come after it."""
    said = dict.fromkeys(_plain(line) for line in lines if not _TRITON_NOISE.search(line))
    naming = [line for line in said if _NAMES_THE_MODEL.search(line)]
    return "; ".join((naming or list(said))[:_LAST_LINES])


def _plain(line: str) -> str:
    return _BACKEND_STACK.sub("", _TRITON_PREFIX.sub("", line.strip())).strip('"')[:_LINE_CHARACTERS]


def tool_failure(tool: str, outcome: Outcome, before: HostMemory, after: HostMemory) -> StepError:
    """Why a tool that was run to its end failed. `before` and `after` are the container's memory around the run."""
    failure = _tool_failure(tool, outcome, before, after)
    failure.log = excerpt(outcome.tail)
    return failure


def excerpt(lines: Sequence[str]) -> str:
    """The last lines as they were printed."""
    return "\n".join(lines[-_EXCERPT_LINES:])


def _tool_failure(tool: str, outcome: Outcome, before: HostMemory, after: HostMemory) -> StepError:
    if outcome.signalled is not None:
        return StepError(
            "Terminated",
            f"{tool} was stopped by {signal.Signals(outcome.signalled).name} after {outcome.duration_seconds:.0f} s: "
            "the Pod was deleted, evicted or ran out of time.",
            retryable=True,
        )
    if failure := host_memory(tool, "spec.build", outcome, before, after):
        return failure
    refused = [match["what"] for line in outcome.tail if (match := _ARGPARSE.match(line))]
    if outcome.status == 2 and refused:
        return StepError("FlagRefused", f"{tool} of this release refuses its command line: {refused[-1]}")
    if outcome.status == 127:
        return StepError("ToolMissing", f"this image cannot run {tool}: {last_words(outcome.tail)}")
    if known := known_failure(f"{tool} ended with {ending(outcome.status)}", outcome.tail, skip=_NOT_WHEN_BUILDING):
        return known
    if -outcome.status in _CRASHES or outcome.status - 128 in _CRASHES:
        return StepError("Crashed", f"{tool} crashed with {ending(outcome.status)}: {last_words(outcome.tail)}")
    return StepError("ToolFailed", f"{tool} ended with {ending(outcome.status)}: {last_words(outcome.tail)}")


def known_failure(what: str, lines: Iterable[str], skip: frozenset[str] = frozenset()) -> StepError | None:
    """A failure that a line of output is known for; None when none is."""
    lines = tuple(lines)
    for known in _KNOWN:
        if known.reason in skip:
            continue
        for line in lines:
            if match := known.pattern.search(line):
                message = f"{what}. {known.advice(match)} It said: {_plain(line)}"
                return StepError(known.reason, message, retryable=known.reason in _RETRYABLE)
    return None


def host_memory(tool: str, field: str, outcome: Outcome, before: HostMemory, after: HostMemory) -> StepError | None:
    """HostMemoryExhausted when that is how the tool ended: certain where the kernel counted it, else likely.

    `field` is the path in the LLMEngine whose `resources` the container has.
    """
    counted = after.oom_kills is not None and after.oom_kills > (before.oom_kills or 0)
    killed = outcome.status in (-signal.SIGKILL, 137) or outcome.tail[-1:] == ("Killed",)
    if not counted and not (killed and outcome.status != 0):
        return None
    limit, peak = after.limit_bytes, after.peak_bytes
    certainty = "ran out of host memory" if counted else "was killed with SIGKILL, most likely for host memory"
    numbers = [f"the container's limit is {gib(limit)}" if limit else "the container has no memory limit"]
    if peak is not None:
        numbers.append(f"its peak was {gib(peak)}")
    numbers.append(f"the largest process had {gib(outcome.peak_process_bytes)}")
    if limit:
        needed = -(-max(limit * 3 // 2, limit + 2**30) // 2**30)
        advice = f"Raise {field}.resources.limits.memory: the next value to try is {needed}Gi"
    else:
        advice = f"The node's memory ran out: set {field}.resources.requests.memory, so that a larger node is chosen"
    return StepError("HostMemoryExhausted", f"{tool} {certainty}: {', '.join(numbers)}. {advice}.")


def ending(status: int) -> str:
    """An exit status for a person."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
