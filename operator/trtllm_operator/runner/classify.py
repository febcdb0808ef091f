"""From how a tool ended to what a person is told. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

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
BUS_ERROR = (
    "A process met a bus error; shared memory (/dev/shm) that is too small is a possible cause, not the only one."
)
_LEAST_VOCABULARY = 1000
"""No vocabulary is smaller; heads and groups are."""
_SPEAKS_OF_AN_ERROR = re.compile(r"^(\w+\.)*\w*(Error|Exception)\b|\[E\]|\[ERROR\]|\berror\b", re.IGNORECASE)


Seen = Mapping[str, str | None]
"""What is known beside the log. Of a server: `engine` (name of the artifact), `gpu` and `computeCapability` it was
found to have, `builtBy` and `release` (TensorRT-LLM of the engine and of the image)."""


@dataclass(frozen=True)
class Said:
    """A line that a pattern matched, the whole output, and what is known beside it."""

    match: re.Match[str]
    text: str
    seen: Seen


@dataclass(frozen=True)
class _Pattern:
    reason: str
    pattern: re.Pattern[str]
    advice: Callable[[Said], str | None]
    """What to tell; None where the line is not what the pattern is for, and the next one is tried."""
    servers: bool = False
    """Read in the output of servers alone: of a build the words mean something else."""
    engine: bool = False
    """The stored engine is at fault: its record was found to fit the server before it was loaded."""


def _requested(said: Said) -> str:
    size = said.match.groupdict().get("bytes")
    asked = f" One allocation asked for {int(size)} bytes ({gib(int(size))})." if size else ""
    return (
        f"The GPU's memory ran out.{asked} Lower budgets.maxBatchSize, budgets.maxNumTokens or budgets.maxSeqLen, "
        "raise parallelism, or build on a GPU of the same compute capability with more memory."
    )


def _other_gpu(said: Said) -> str:
    """Which of the two numbers is the device is not told by the wording: logs have both orders. The GPU itself says."""
    first, second, device = said.match[1], said.match[2], said.seen.get("computeCapability")
    if device not in (first, second) or first == second:
        return f"The engine's file and this GPU have different compute capabilities, {first} and {second}."
    engine = second if device == first else first
    return (
        f"The engine's file is for compute capability {engine}, and {said.seen.get('gpu') or 'this GPU'} has {device}: "
        "the stored engine is not what its record says. It is put aside and built again."
    )


def _other_tensorrt(said: Said) -> str:
    tags = re.search(r"Current Version: (\d+), Serialized Engine Version: (\d+)", said.text)
    numbers = ""
    if tags:
        runtime, engine = int(tags[1]), int(tags[2])
        age = f": the serving image is {'older' if runtime < engine else 'newer'} than the build image"
        numbers = f" (runtime tag {runtime}, engine tag {engine}{age if runtime != engine else ''})"
    return (
        f"The engine was serialized by another TensorRT than the one that loads it{numbers}. Use one image to build "
        "and to serve, or build the engine again."
    )


def _other_schema(said: Said) -> str:
    built, here = said.seen.get("builtBy") or "unknown", said.seen.get("release") or "unknown"
    return (
        f"The engine's config.json and the backend that reads it are of two releases: it has no key {said.match[1]}. "
        f"The engine was built by TensorRT-LLM {built}, and this image has {here}. Use one image to build and to serve."
    )


def _padded_vocabulary(said: Said) -> str | None:
    """Two shapes that differ in one dimension, one of them the other's next multiple of a power of two up to 64."""
    shapes = [[int(size) for size in re.findall(r"\d+", shape)] for shape in said.match.groups()]
    pairs = [pair for pair in zip(*shapes, strict=False) if pair[0] != pair[1]]
    if len(shapes[0]) != len(shapes[1]) or len(pairs) != 1:
        return None
    large, small = max(pairs[0]), min(pairs[0])
    multiple = next((m for m in (64, 32, 16, 8, 4, 2) if small % m and -(-small // m) * m == large), None)
    if multiple is None or small < _LEAST_VOCABULARY:
        return None
    return (
        f"The release pads the vocabulary of one table and not of the other: {large} against {small}, which is the "
        f"next multiple of {multiple}. Choose another precision.quantization or another release."
    )


def _unreadable_template(said: Said) -> str:
    model = re.search(r"text proto from \S*?([^/\s]+)/config\.pbtxt", said.text)
    place = re.search(r"ModelConfig: (\d+):(\d+): (.*)", said.text)
    where = f" of {model[1]}" if model else ""
    at = f" at line {place[1]}, column {place[2]} ({place[3].strip()})" if place else ""
    unfilled = " A placeholder was left unfilled." if place and re.search(r"got: \$", place[3]) else ""
    return f"Triton cannot parse the rendered configuration{where}{at}.{unfilled}"


def _known(
    reason: str,
    pattern: str,
    advice: str | Callable[[Said], str | None],
    *,
    servers: bool = False,
    engine: bool = False,
) -> _Pattern:
    def constant(_said: Said) -> str:
        return str(advice)

    return _Pattern(reason, re.compile(pattern), advice if callable(advice) else constant, servers, engine)


_KNOWN: tuple[_Pattern, ...] = (
    _known(
        "DiskFull",
        r"No space left on device|\[Errno 28\]|\bENOSPC\b",
        "The node's disk is full. Request ephemeral-storage in spec.build.resources, so that one with room is chosen.",
    ),
    _known(
        "EngineMismatch",
        r"expecting compute (\d+\.\d+) got compute (\d+\.\d+)",
        _other_gpu,
        servers=True,
        engine=True,
    ),
    _known(
        "PrecisionUnsupported",
        r"Networks? with FP8 precision require|requires? hardware with FP8 support",
        "The GPU has no FP8: it comes with compute capability 8.9 and later. Choose another precision.quantization.",
    ),
    _known(
        "GpuMemoryExhausted",
        r"Requested amount of GPU memory \((?P<bytes>\d+) bytes\) could not be allocated",
        _requested,
    ),
    _known(
        "GpuMemoryExhausted",
        r"virtualMemoryBuffer.*OutOfMemory|CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError"
        r"|cudaErrorMemoryAllocation|CUDA error: out of memory|Error Code 2: OutOfMemory"
        r"|Failed to allocate memory for weights",
        _requested,
    ),
    _known(
        "PrecisionUnsupported",
        r"pre SM 80 GPUs do not support bfloat16",
        "The GPU has no bfloat16: it comes with compute capability 8.0. Set precision.dtype float16.",
    ),
    _known(
        "DriverTooOld",
        r"CUDA driver version is insufficient|cudaErrorInsufficientDriver|forward compatibility was attempted on non",
        "The node's driver is older than this image's CUDA needs. Upgrade it, or take an older release.",
    ),
    _known(
        "GpuUnhealthy",
        r"uncorrectable ECC error|cudaErrorECCUncorrectable|fallen off the bus|NVRM: Xid|CUDA_ERROR_ECC"
        r"|Unable to determine the device handle",
        "The GPU failed. See the node's kernel log for NVRM: Xid, and take the GPU out of use.",
    ),
    _known(
        "KernelMissing",
        r"FMHA kernels are not found|[Nn]o valid (weight only|GEMM) kernel|can ?not find .* kernel",
        "There is no kernel for this combination on this GPU. Choose another precision.kvCache or quantization.",
    ),
    _known(
        "PluginMismatch",
        r"could not find any supported formats consistent with input/output data types",
        "A plugin's type differs from the model's, or memory was short. Leave plugin types at auto, or lower budgets.",
    ),
    _known(
        "PluginMismatch",
        r"Paged Context FMHA doesn't work with|FP8 Paged Context FMHA only works",
        "The type of the KV cache excludes paged context FMHA with these weights. Choose another precision.kvCache.",
    ),
    _known(
        "NoPeerAccess",
        r"peer access is not supported between|Can't enable access between nodes",
        "The GPUs cannot reach each other directly: use GPUs with NVLink, or parallelism 1.",
    ),
    _known(
        "VocabularyPadding",
        r"not the same shape as the original\. Updated: \(([\d, ]+)\), original: \(([\d, ]+)\)",
        _padded_vocabulary,
    ),
    _known(
        "VocabularyPadding",
        r"with shape (?:torch\.Size)?\(?\[([\d, ]+)\].*model is (?:torch\.Size)?\(?\[([\d, ]+)\]",
        _padded_vocabulary,
    ),
    _known(
        "CheckpointBroken",
        r"Required but not provided tensors|Expected but not provided tensors|Error while deserializing header"
        r"|SafetensorError|does not match the (expected|loaded) shape",
        "The checkpoint lacks tensors or has other ones. Delete its EngineArtifact, and it is made again.",
    ),
    _known(
        "CalibrationUnavailable",
        r"Couldn't reach .* on the Hub|ConnectionError: .*(dataset|Hub)|holds no \.txt, \.json or \.jsonl samples",
        "The calibration data cannot be read. Name a directory of a claim in precision.calibration.dataset.",
    ),
    _known(
        "GpuUnsupported",
        r"Assertion failed: Unsupported architecture|no kernel image is available for execution on the device",
        "This release has no kernels for this GPU.",
    ),
    _known(
        "ArchitectureUnsupported",
        r"Unsupported model architecture|is not supported by this (script|converter)",
        "This release has no engine for the model's architecture.",
    ),
    _known(
        "VersionMismatch",
        r"Version tag does not match|kSERIALIZATION_VERSION",
        _other_tensorrt,
        engine=True,
    ),
    _known(
        "VersionMismatch",
        r"key '(\w+)' not found",
        _other_schema,
        servers=True,
    ),
    _known(
        "WorldSizeMismatch",
        r"MPI size \d+ != TP size|mpiSize == tp \* pp"
        r"|Engine world size \([\d *]+\) != Runtime world size \(\d+\)"
        r"|(tensor|pipeline|[Cc]ontext) parallelism mismatch",
        "The engine's ranks and the processes that serve it do not match.",
        servers=True,
    ),
    _known(
        "SharedMemoryExhausted",
        r"Unable to initialize shared memory key|Failed to initialize Python stub.*shared memory",
        "The shared memory (/dev/shm) is too small for the Python backend.",
    ),
    _known(
        "SharedMemoryExhausted",
        r"[Ss]ignal:? \(?7\b|\bBus error\b",
        BUS_ERROR,
        servers=True,
    ),
    _known(
        "EngineCorrupted",
        r"Failed to deserialize cuda engine|Error opening engine file|has no config\.json|parse_error\.101",
        "The engine's files cannot be read.",
        servers=True,
    ),
    _known(
        "TokenizerMissing",
        r"is not a local folder and is not a valid model identifier|Can't load tokenizer for"
        r"|[Ii]ncorrect path_or_model_id|Repo id must be in the form",
        "The tokenizer is not found in the model's files. The engine is not at fault.",
        servers=True,
    ),
    _known(
        "TokenizerMissing",
        r"Tokenizer class (\w+) does not exist or is not currently imported|requires you to execute the \w+ file",
        "The tokenizer's class is not one of Transformers' own: it would take code of the model's repository, which is "
        "never fetched. Take a copy of the model with a tokenizer.json and without auto_map.",
        servers=True,
    ),
    _known(
        "TemplateMismatch",
        r"failed to read text proto|Error parsing text-format inference\.ModelConfig",
        _unreadable_template,
        servers=True,
    ),
    _known(
        "TemplateMismatch",
        r"cannot have empty reshape for non-batching model",
        "A model was given max_batch_size 0, with which its inputs cannot be reshaped.",
        servers=True,
    ),
)
"""First match decides. A cause stands before what it leads to."""

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
    if known := known_failure(f"{tool} ended with {ending(outcome.status)}", outcome.tail):
        return known
    if -outcome.status in _CRASHES or outcome.status - 128 in _CRASHES:
        return StepError("Crashed", f"{tool} crashed with {ending(outcome.status)}: {last_words(outcome.tail)}")
    return StepError("ToolFailed", f"{tool} ended with {ending(outcome.status)}: {last_words(outcome.tail)}")


def known_failure(
    what: str, lines: Iterable[str], *, server: bool = False, seen: Seen = MappingProxyType({})
) -> StepError | None:
    """A failure that a line of output is known for; None when none is. `server`: of a server that is to load an
    engine, not of what makes one."""
    lines = tuple(lines)
    text = "\n".join(lines)
    for known in _KNOWN:
        if known.servers and not server:
            continue
        for line in lines:
            if (match := known.pattern.search(line)) and (advice := known.advice(Said(match, text, seen))):
                message = f"{what}. {advice} It said: {_plain(line)}"
                engine = seen.get("engine") if known.engine else None
                passes = known.reason in _RETRYABLE or engine is not None
                return StepError(known.reason, message, retryable=passes, artifact=engine)
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
