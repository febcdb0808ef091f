"""Why an attempt fails or waits: a closed table of reasons, what is done about each, and what a person would change.

The plan of an artifact and docs/failures.md are made from this table and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..objects import JOBS_ACCOUNT, RETRY

Growth = Literal["memory", "ephemeral-storage"]


@dataclass(frozen=True)
class Retry:
    """How often a failure that may pass is tried again, and how long between."""

    times: int
    """Further attempts after failures of this one reason under one policy."""
    pauses_seconds: tuple[int, ...]
    """Between the failure and the next attempt; the last one repeats."""
    counted: bool = True
    """Whether it uses up spec.build.maxAttempts. What the cluster or the source does to an attempt does not."""
    grows: Growth | None = None
    """What the next attempt gets more of, by `GROWTH`, where the amount was computed. A user's own limit stays."""


GROWTH = (3, 2)
"""What an attempt that ran out has, times this fraction, is what the next one gets."""


@dataclass(frozen=True)
class Kind:
    """One reason."""

    means: str
    """What has happened, in a sentence for who applied the object."""
    remedy: str
    """What to change; empty where nothing is to be done."""
    retry: Retry | None = None
    """None: never again by itself. A changed policy or the retry annotation opens another attempt."""
    waits: bool = False
    """The attempt is not over: it goes on by itself once the cause is gone."""
    stalls: bool = False
    """Of what waits: waiting alone does not help, a person has to act."""
    outside: bool = False
    """The remedy is no field of the spec: that it is done has to be said, with the retry annotation."""
    secrets: Literal["named", "pull"] | None = None
    """A Secret may be at fault: one that the spec names, or a pull secret. When it changes another attempt follows."""


@dataclass(frozen=True)
class Failure:
    """What became of one attempt, for a person: the reason in one word, what is wrong in numbers, what would fix it."""

    reason: str
    """A key of `KINDS`."""
    message: str
    log: str = ""
    """Last lines of the container's output, where there are any."""
    retry_after_seconds: int | None = None
    """The source of a download asked for this pause."""

    @property
    def kind(self) -> Kind:
        return KINDS[self.reason]

    @property
    def retryable(self) -> bool:
        """Whether another attempt may succeed without anybody changing anything."""
        return self.kind.retry is not None


_LATER = Retry(times=19, pauses_seconds=(10, 30, 120, 300))
_ONCE = Retry(times=1, pauses_seconds=(10,))
_ELSEWHERE = Retry(times=3, pauses_seconds=(30, 120, 300))
_DISRUPTED = Retry(times=20, pauses_seconds=(10, 30, 60), counted=False)
_REPAIRED = Retry(times=5, pauses_seconds=(10, 30, 120), counted=False)
_SOURCE_BUSY = Retry(times=30, pauses_seconds=(30, 60, 120, 300, 600), counted=False)
_MORE_MEMORY = Retry(times=3, pauses_seconds=(5,), grows="memory")
_MORE_DISK = Retry(times=2, pauses_seconds=(5,), grows="ephemeral-storage")

_RESOURCES = "spec.build.resources"
_TOKEN = "spec.model.huggingFace.tokenSecretRef"  # noqa: S105 (the name of a field)
_REPORT = "report it with the log"
_PRECISION = "another spec.precision, or another release"
_DATASET = "spec.precision.calibration.dataset"
_SMALLER = "smaller spec.budgets, more parallelism, or a GPU with more memory"

_MEMORY_AND_DISK: Mapping[str, Kind] = {
    "HostMemoryExhausted": Kind(
        "The container ran out of host memory: counted by the kernel, or most likely where it was killed without a "
        "word. Planned memory grows by half for the next attempt; a limit of the user's own is not exceeded.",
        f"{_RESOURCES}.limits.memory, and requests.memory with it",
        _MORE_MEMORY,
    ),
    "StepMemoryExhausted": Kind(
        "A step of the operator's own image ran out of host memory; the next attempt gets half as much again.",
        _REPORT,
        _MORE_MEMORY,
    ),
    "GpuMemoryExhausted": Kind("The GPU's memory ran out.", _SMALLER),
    "GpuMemoryHeld": Kind(
        "The GPU's memory ran out while a Pod of this operator was still ending on the node, and may have held it.",
        "",
        _DISRUPTED,
    ),
    "SharedMemoryExhausted": Kind(
        "Shared memory (/dev/shm) is too small.", "spec.parallelism, or report it: the size is planned"
    ),
    "DiskFull": Kind(
        "A volume of the Pod is full, most often the store.", "a larger claim, or fewer artifacts in it", outside=True
    ),
    "NodeDiskFull": Kind(
        "The disk of the node is full, though the Pod is within its limit.",
        f"{_RESOURCES}.requests.ephemeral-storage, so that a node with that much free is chosen",
        _ELSEWHERE,
    ),
    "EphemeralStorageExhausted": Kind(
        "The Pod wrote more to its node's disk than its limit. A planned limit grows by half for the next attempt.",
        f"{_RESOURCES}.limits.ephemeral-storage",
        _MORE_DISK,
    ),
    "DiskPressure": Kind(
        "The node ran low on disk and evicted the Pod, more than once in this attempt.",
        f"{_RESOURCES}.requests.ephemeral-storage, so that a node with that much free is chosen",
        _ELSEWHERE,
    ),
}

_SPEC_AND_RELEASE: Mapping[str, Kind] = {
    "ArchitectureUnsupported": Kind("The release has no engine for the model's architecture.", "spec.release"),
    "GpuUnsupported": Kind("The release has no kernels for this GPU generation.", "spec.targets, or spec.release"),
    "FlagRefused": Kind(
        "The tool refuses its command line: a flag that this release does not have, or a value it does not take.",
        "spec.build.extraFlags, or report it",
    ),
    "PluginMismatch": Kind(
        "A plugin has no implementation for the types it is given: its type differs from the model's, or memory ran "
        "short in disguise.",
        "spec.build.extraFlags (plugin types default to the model's), or smaller spec.budgets",
    ),
    "KernelMissing": Kind("There is no kernel for this combination of precision and GPU.", _PRECISION),
    "PrecisionUnsupported": Kind("The GPU cannot compute in this precision.", _PRECISION),
    "VersionMismatch": Kind(
        "Two releases of TensorRT(-LLM) meet that do not fit. A server's engine that was serialized by another "
        "TensorRT than its record says is put aside and built again.",
        "one release for both",
    ),
    "VocabularyPadding": Kind(
        "The release pads the vocabulary of one table and not of the other, so that their shapes differ.", _PRECISION
    ),
    "ToolMissing": Kind("The image lacks the tool: it is no toolchain image of this release.", "toolchainImages"),
    "SpecInvalid": Kind("A step was called wrongly.", _REPORT),
    "ToolFailed": Kind(
        "The tool failed for a reason that is not known; its last lines are in status.attempts.",
        f"what the lines say; else {_REPORT}",
    ),
    "Crashed": Kind("A process crashed (SIGSEGV, SIGABRT, SIGILL, SIGFPE, SIGBUS).", f"the inputs, or {_REPORT}"),
    "OutputInvalid": Kind("The tool exited with 0 and left something else than was asked for.", _REPORT),
    "OutputMissing": Kind("The tool exited with 0 and left nothing.", _REPORT),
    "EngineBroken": Kind(
        "The finished engine does not load, or generates no token, on the GPU it was built on; it is not published.",
        f"smaller spec.budgets where memory is named; else {_REPORT}",
        _ONCE,
    ),
    "CheckpointBroken": Kind(
        "The checkpoint lacks tensors or has others than its config.json says.",
        "the model's files; delete the EngineArtifact of the checkpoint, and it is made again",
        outside=True,
    ),
    "Internal": Kind("A step failed on its own account.", _REPORT, _ONCE),
    "StepFailed": Kind("A container ended without a report.", "what its last lines say", _LATER),
}

_MODEL_AND_STORE: Mapping[str, Kind] = {
    "DownloadRefused": Kind(
        "The hub refuses the download: 401 is a token that is missing, wrong or expired; 403 one without access, or a "
        "gated repository whose terms its account has not been granted.",
        f"the Secret that {_TOKEN} names, or access on the hub",
        outside=True,
        secrets="named",
    ),
    "ModelNotFound": Kind(
        "There is no such repository, revision or directory (404), or none that the token may see.",
        "spec.model",
        outside=True,
        secrets="named",
    ),
    "ModelUnreadable": Kind("The model's files are not what they should be.", "spec.model"),
    "ModelChanged": Kind("The files on the claim are not those that were inspected.", "another directory"),
    "TokenizerMissing": Kind("The model has no tokenizer that can be used.", "the model's files"),
    "HubRateLimited": Kind(
        "The hub asks to slow down (429). The pause is at least what its Retry-After says.", "", _SOURCE_BUSY
    ),
    "HubUnreachable": Kind("The hub cannot be reached, or answers 5xx.", "network, proxy or hubEndpoint", _SOURCE_BUSY),
    "DownloadCorrupted": Kind("Files did not arrive whole; they are fetched again.", "", _LATER),
    "CalibrationUnreadable": Kind(
        "The texts of a calibration are missing, empty or too many, or a row has no text. File and line are said "
        "before a GPU is asked for.",
        f"the files, or {_DATASET}",
        outside=True,
    ),
    "CalibrationChanged": Kind(
        "The texts of a calibration are not those that were inspected. They are inspected again, and a checkpoint is "
        "made from what is there then.",
        "another directory for other texts; where the earlier ones are back, another attempt",
        outside=True,
    ),
    "CalibrationUnavailable": Kind(
        "The calibration data cannot be had: a build reaches no network.",
        f"{_DATASET}, a directory of a claim",
    ),
    "ArtifactCorrupted": Kind(
        "Files of the artifact, or of what it is made from, are damaged or missing. The store is checked and what is "
        "damaged there made again.",
        "",
        _REPAIRED,
        outside=True,
    ),
    "StorageRefused": Kind(
        "The bucket's server refuses: wrong credentials, a missing permission, no such bucket, another region.",
        "the Secret that credentialsSecretRef names, or the bucket's policy",
        outside=True,
        secrets="named",
    ),
    "StorageUnreachable": Kind(
        "The bucket's server cannot be reached, or answers 5xx.", "network or endpoint", _SOURCE_BUSY
    ),
    "StoreFailed": Kind("The store gave an input/output error.", "the volume", _LATER),
}

_NODES_AND_CLUSTER: Mapping[str, Kind] = {
    "GpuUnavailable": Kind("The container was given no GPU that works.", "driver and device plugin", _ELSEWHERE),
    "GpuMismatch": Kind("The node's GPU is not the one its labels name.", "the node's labels", _ELSEWHERE),
    "GpuUnhealthy": Kind(
        "The GPU failed (an Xid or ECC error). The device plugin takes such a GPU out until the node is repaired.",
        "the node: see its kernel log for NVRM: Xid",
        _ELSEWHERE,
    ),
    "GpuRequestRefused": Kind(
        "The device plugin refuses this many shared GPUs in one container.", "whole GPUs, or spec.parallelism 1"
    ),
    "DriverTooOld": Kind(
        "The node's driver is older than the image's CUDA needs.", "the driver, or an older release", outside=True
    ),
    "ImagePlatformMismatch": Kind(
        "The image does not exist for the node's processor architecture.",
        "spec.build.nodeSelector kubernetes.io/arch, or an image for that architecture",
    ),
    "NodeLost": Kind("The node is gone or has stopped answering.", "", _DISRUPTED),
    "NodeShutdown": Kind("The node was shut down.", "", _DISRUPTED),
    "NodeRefused": Kind("The node took the Pod and then had no room for it.", "", _DISRUPTED),
    "Preempted": Kind(
        "The scheduler gave the place to a Pod of higher priority.", "spec.build.priorityClassName", _DISRUPTED
    ),
    "Evicted": Kind("The Pod was evicted: by a drain, or by its node for want of memory.", "", _DISRUPTED),
    "Terminated": Kind("The Pod was deleted while it ran.", "", _DISRUPTED),
    "PodLost": Kind("The Pod was gone before it was known how it ended.", "", _DISRUPTED),
    "PodFailed": Kind("The Pod failed and nobody said why.", "", _LATER),
    "DeadlineExceeded": Kind(
        "The attempt ran longer than it may. Time spent waiting for a node does not count.",
        "spec.build.timeoutSeconds, if it made progress",
    ),
    "NeverStarted": Kind(
        "No container of the attempt could be started: it waited a day for a node, or on its node, for an image or a "
        "volume, for as long as it may run. The next one goes on waiting.",
        "",
        _DISRUPTED,
    ),
    "PolicyChanged": Kind(
        "The attempt had not begun when its policy changed; the next one has the new one.", "", _DISRUPTED
    ),
    "SecretChanged": Kind(
        "The attempt could not begin for want of a Secret, and that has changed; the next one begins with it.",
        "",
        _DISRUPTED,
    ),
}

_WAITING: Mapping[str, Kind] = {
    "Suspended": Kind("A queue, or a person, has yet to admit the Job.", "", waits=True),
    "PodNotCreated": Kind("The Job controller has not created the Pod yet.", "", waits=True),
    "QuotaExceeded": Kind(
        "The namespace's ResourceQuota leaves no room for the Pod.", "the quota, or spec.build.resources", waits=True
    ),
    "PodRefused": Kind(
        "The API server refuses the Pod: PodSecurity, a LimitRange, a missing PriorityClass or an admission webhook.",
        "what the message names",
        waits=True,
        stalls=True,
    ),
    "Unschedulable": Kind("No node can take the Pod as it is; the message says why, node by node.", "", waits=True),
    "WaitingForGpu": Kind("Nodes fit and their GPUs are taken.", "", waits=True),
    "WaitingForResources": Kind("Nodes fit and their memory or processors are taken.", "", waits=True),
    "PodStarting": Kind("The Pod has a node and its containers are being made.", "", waits=True),
    "SecretMissing": Kind(
        "A Secret that the spec names does not exist, or lacks the key.",
        "create the Secret, or add the key",
        waits=True,
        stalls=True,
        secrets="named",
    ),
    "ImagePullFailed": Kind(
        "The node cannot pull an image. The kubelet tries again by itself; when the namespace's pull secrets change, "
        "the Pod is made anew with them.",
        f"the image's name, or imagePullSecrets of the namespace's ServiceAccount {JOBS_ACCOUNT}",
        waits=True,
        stalls=True,
        secrets="pull",
    ),
    "ContainerNotCreated": Kind(
        "The kubelet cannot make a container: the runtime refuses, or what the container takes is missing.",
        "what the message names",
        waits=True,
        stalls=True,
    ),
    "VolumeUnavailable": Kind(
        "The node cannot attach or mount a volume: a claim that another node has, or a Secret or ConfigMap that is "
        "missing. The kubelet tries again by itself.",
        "the claim's access mode or the Pods' nodes, or what the message names",
        waits=True,
    ),
    "AttemptEnding": Kind("The Pod has failed and the Job is about to.", "", waits=True),
}

_SERVERS: Mapping[str, Kind] = {
    "DrainTimeout": Kind("Requests in flight took longer than the server had to finish them.", ""),
    "EngineCorrupted": Kind("The engine's files are damaged.", "delete its EngineArtifact; it is made again"),
    "EngineMismatch": Kind(
        "The engine is for another compute capability than its record or its server's GPU says; it is put aside and "
        "built again, once a day at most.",
        "",
    ),
    "ModelLoadFailed": Kind("Triton did not load a model.", "what the message says"),
    "TemplateMismatch": Kind("Triton cannot read the rendered configuration.", _REPORT),
    "WorldSizeMismatch": Kind("Ranks of the engine and processes that serve it differ.", _REPORT),
    "NoPeerAccess": Kind("The GPUs of the node cannot reach each other.", "spec.parallelism 1, or GPUs with NVLink"),
}

SECTIONS: Mapping[str, Mapping[str, Kind]] = {
    "Memory and disk": _MEMORY_AND_DISK,
    "Spec, release and tools": _SPEC_AND_RELEASE,
    "Model and store": _MODEL_AND_STORE,
    "Nodes and cluster": _NODES_AND_CLUSTER,
    "An attempt that waits": _WAITING,
    "Servers": _SERVERS,
}
"""Of servers the kubelet restarts the container whatever the reason; the operator reports it."""

KINDS: Mapping[str, Kind] = {reason: kind for section in SECTIONS.values() for reason, kind in section.items()}


def retry_hint(kind: str, name: str) -> str:
    """What says that the remedy is done, where it is no field of the spec."""
    return f" (once that is done: {_retry_command(kind, name)})"


def secrets_hint(kind: str, name: str, secrets: tuple[str, ...], *, outside: bool) -> str:
    """What follows by itself where a Secret may be at fault."""
    which = f"Secret {secrets[0]}" if len(secrets) == 1 else f"one of the Secrets {', '.join(secrets)}"
    elsewhere = f"; after a remedy elsewhere: {_retry_command(kind, name)}" if outside else ""
    return f" (tried again by itself once {which} changes{elsewhere})"


def _retry_command(kind: str, name: str) -> str:
    return f"kubectl annotate {kind} {name} {RETRY}=$(date +%s) --overwrite"


def pause_seconds(failure: Failure, failures: int) -> int:
    """Before the next attempt, after `failures` of this reason (at least 1)."""
    retry = failure.kind.retry
    if retry is None:
        raise ValueError(f"{failure.reason} is never tried again")
    planned = retry.pauses_seconds[min(failures, len(retry.pauses_seconds)) - 1]
    return max(planned, min(failure.retry_after_seconds or 0, 3600))
