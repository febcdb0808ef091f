"""Objects that the API accepts, and a way to spoil them."""

from __future__ import annotations

import json
from typing import Any

Obj = dict[str, Any]

MINIMAL_ENGINE: Obj = {
    "apiVersion": "llmengine.dev/v1alpha1",
    "kind": "LLMEngine",
    "metadata": {"name": "smollm2"},
    "spec": {
        "model": {"huggingFace": {"repo": "HuggingFaceTB/SmolLM2-135M-Instruct"}},
        "release": "1.2.1",
        "budgets": {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 2048},
        "targets": [{"name": "a100", "gpu": {"product": "NVIDIA-A100-SXM4-80GB"}}],
        "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
    },
}

SELECTING_ENGINE: Obj = {
    **MINIMAL_ENGINE,
    "metadata": {"name": "a" * 24},
    "spec": {
        **MINIMAL_ENGINE["spec"],
        "targets": [
            {"name": "gpu", "gpu": {"any": {}}},
            {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}},
            {"name": "ada-lovelace", "gpu": {"architecture": "ada-lovelace"}},
            {"name": "sm-90", "gpu": {"computeCapability": "9.0"}},
        ],
    },
}
"""Targets of every kind, with names as long as they may be together with the object's."""

_PLACEMENT: Obj = {
    "nodeSelector": {"kubernetes.io/hostname": "gpu-1", "pool": ""},
    "tolerations": [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        {"key": "team", "operator": "Equal", "value": "llm"},
    ],
}
_RESOURCES: Obj = {
    "requests": {"cpu": 1, "memory": "500Mi", "ephemeral-storage": "1e9"},
    "limits": {"cpu": "1500m", "memory": "0.5Gi", "ephemeral-storage": "1G"},
}

_CALIBRATION: Obj = {
    "dataset": {"persistentVolumeClaim": {"claimName": "texts", "path": "english"}},
    "samples": 64,
    "maxSeqLen": 1024,
}

FULL_ENGINE: Obj = {
    **MINIMAL_ENGINE,
    "metadata": {"name": "a" + "-" * 34 + "z"},
    "spec": {
        **MINIMAL_ENGINE["spec"],
        "model": {
            "huggingFace": {
                "repo": "meta-llama/Llama-3.1-8B",
                "revision": "refs/pr/1",
                "tokenSecretRef": {"name": "hub", "key": "token"},
            }
        },
        "precision": {
            "dtype": "bfloat16",
            "quantization": "fp8",
            "kvCache": "fp8",
            "groupSize": 64,
            "calibration": _CALIBRATION,
        },
        "parallelism": {"tensor": 8, "pipeline": 8},
        "budgets": {**MINIMAL_ENGINE["spec"]["budgets"], "maxInputLen": 2047, "maxBeamWidth": 4},
        "targets": [
            {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "replicas": 0},
            {
                "name": "an-h200-in-paris",
                "gpu": {"product": "NVIDIA-H200"},
                "replicas": 2,
                "weight": 2,
                "precision": {
                    "dtype": "float16",
                    "quantization": "int4_awq",
                    "kvCache": "auto",
                    "groupSize": 128,
                    "calibration": _CALIBRATION,
                },
                "parallelism": {"tensor": 1, "pipeline": 1},
                "budgets": {
                    "maxBatchSize": 1,
                    "maxInputLen": 4095,
                    "maxSeqLen": 4096,
                    "maxNumTokens": 8192,
                    "maxBeamWidth": 1,
                },
                "serving": {
                    **_PLACEMENT,
                    "resources": _RESOURCES,
                    "kvCacheFreeGpuMemoryPercent": 50,
                    "maxQueueSize": 1,
                },
            },
        ],
        "build": {
            **_PLACEMENT,
            "resources": _RESOURCES,
            "timeoutSeconds": 60,
            "maxAttempts": 1,
            "scaleFromZero": True,
            "workers": 2,
            "calibrationGpus": 4,
            "extraFlags": [{"name": "--gemm_swiglu_plugin", "value": "fp8"}, {"name": "--fast_build"}],
            "priorityClassName": "low",
            "queueName": "builds",
        },
        "rollout": {"strategy": "Recreate"},
        "front": {
            **_PLACEMENT,
            "replicas": 2,
            "modelNames": ["gpt-x"],
            "strictMaxTokens": True,
            "maxConcurrentRequests": 1,
            "maxQueuedTokens": 0,
            "queueTimeoutSeconds": 1,
            "perCaller": {"requestsPerMinute": 1, "tokensPerMinute": 1, "header": "X-Team"},
            "apiKeysSecretRef": {"name": "keys"},
            "guard": {"url": "https://guard.example/check", "timeoutSeconds": 1, "failurePolicy": "Ignore"},
            "requestLog": True,
            "resources": _RESOURCES,
        },
        "serving": {
            **_PLACEMENT,
            "resources": _RESOURCES,
            "kvCacheFreeGpuMemoryPercent": 80,
            "maxQueueSize": 0,
        },
    },
}
"""Says everything that an LLMEngine can say, most of it at its limit."""

CLAIM_ENGINE: Obj = {
    **MINIMAL_ENGINE,
    "spec": {
        **MINIMAL_ENGINE["spec"],
        "model": {"persistentVolumeClaim": {"claimName": "models", "path": "llama/3.1-8b"}},
    },
}

_BUCKET: Obj = {
    "bucket": "llm-models.eu",
    "prefix": "team_a/llama-3.1=8b",
    "endpoint": "https://minio.storage.svc:9000",
    "region": "eu-central-1",
}
S3_ENGINE: Obj = {
    **MINIMAL_ENGINE,
    "spec": {
        **MINIMAL_ENGINE["spec"],
        "model": {"s3": {**_BUCKET, "credentialsSecretRef": {"name": "models"}}},
        "storage": {"s3": {**_BUCKET, "prefix": "engines", "credentialsSecretRef": {"name": "engines"}}},
    },
}

_ARTIFACT: Obj = {"apiVersion": "llmengine.dev/v1alpha1", "kind": "EngineArtifact"}
_STORAGE: Obj = {"persistentVolumeClaim": {"claimName": "engines"}}
_POLICY: Obj = {
    **_PLACEMENT,
    "resources": _RESOURCES,
    "gpus": 1,
    "timeoutSeconds": 600,
    "maxAttempts": 3,
    "scaleFromZero": True,
    "tokenSecretRef": {"name": "hub", "key": "token"},
    "planned": {"hostMemoryBytes": 1, "ephemeralStorageBytes": 1, "sharedMemoryBytes": 1},
    "gpuProduct": "NVIDIA-H100-80GB-HBM3",
    "priorityClassName": "low",
    "queueName": "builds",
}
_EXPECTED: Obj = {
    "release": "1.2.1",
    "tensorParallel": 2,
    "pipelineParallel": 1,
    "dtype": "bfloat16",
    "quantAlgo": "FP8",
    "kvCacheQuantAlgo": "FP8",
    "maxBatchSize": 8,
    "maxInputLen": 1024,
    "maxSeqLen": 2048,
    "maxNumTokens": 2048,
    "maxBeamWidth": 1,
}
_IMAGE = "registry.example/toolchain@sha256:" + "ab" * 32

MODEL: Obj = {
    **_ARTIFACT,
    "metadata": {"name": "model-0123456789abcdef0123"},
    "spec": {
        "type": "Model",
        "inputs": {
            "keySchema": 1,
            "model": {"huggingFace": {"repo": "meta-llama/Llama-3.1-8B", "commit": "0123456789" * 4}},
            "storage": _STORAGE,
        },
        "policy": _POLICY,
    },
}
CLAIM_MODEL: Obj = {
    **_ARTIFACT,
    "metadata": {"name": "model-0123456789abcdef0124"},
    "spec": {
        "type": "Model",
        "inputs": {
            "keySchema": 1,
            "model": {"persistentVolumeClaim": {"claimName": "models", "path": "llama", "digest": "ab" * 32}},
            "storage": _STORAGE,
        },
    },
}
S3_MODEL: Obj = {
    **_ARTIFACT,
    "metadata": {"name": "model-0123456789abcdef0125"},
    "spec": {
        "type": "Model",
        "inputs": {
            "keySchema": 1,
            "model": {"s3": {**_BUCKET, "digest": "ab" * 32}},
            "storage": {"s3": {**_BUCKET, "prefix": "engines"}},
        },
        "policy": {"modelSecretRef": {"name": "models"}, "storeSecretRef": {"name": "engines"}},
    },
}
CHECKPOINT: Obj = {
    **_ARTIFACT,
    "metadata": {"name": "checkpoint-0123456789abcdef0123"},
    "spec": {
        "type": "Checkpoint",
        "inputs": {
            "keySchema": 1,
            "parent": MODEL["metadata"]["name"],
            "image": _IMAGE,
            "command": ["convert_checkpoint.py", "--model_dir", "{parent}"],
            "calibration": {"claimName": "texts", "path": "english", "digest": "c" * 64},
            "storage": _STORAGE,
        },
        "expected": _EXPECTED,
    },
}
ENGINE: Obj = {
    **_ARTIFACT,
    "metadata": {"name": "engine-0123456789abcdef0123"},
    "spec": {
        "type": "Engine",
        "inputs": {
            "keySchema": 1,
            "parent": CHECKPOINT["metadata"]["name"],
            "image": _IMAGE,
            "command": ["trtllm-build", "--checkpoint_dir", "{parent}"],
            "gpu": {
                "product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
                "computeCapability": "9.0",
                "cpuArchitecture": "arm64",
                "resource": "nvidia.com/mig-1g.10gb",
            },
            "storage": _STORAGE,
        },
        "expected": _EXPECTED,
        "policy": _POLICY,
    },
}

GOOD = {
    "minimal LLMEngine": MINIMAL_ENGINE,
    "full LLMEngine": FULL_ENGINE,
    "LLMEngine for classes of GPUs": SELECTING_ENGINE,
    "LLMEngine from a claim": CLAIM_ENGINE,
    "LLMEngine from a bucket into a bucket": S3_ENGINE,
    "Model from a bucket into a bucket": S3_MODEL,
    "Model": MODEL,
    "Model from a claim": CLAIM_MODEL,
    "Checkpoint": CHECKPOINT,
    "Engine": ENGINE,
}

ABSENT = object()


def changed(obj: Obj, path: str, value: object) -> Obj:
    """A copy of `obj` with the field at the dotted `path` set, or removed with `ABSENT`; numbers index lists."""
    out: Obj = json.loads(json.dumps(obj))  # not deepcopy, which keeps parts that are shared shared
    *parents, last = path.split(".")
    node: Any = out
    for part in parents:
        node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
    if value is ABSENT:
        del node[last]
    elif isinstance(node, list):
        node[int(last)] = value
    else:
        node[last] = value
    return out
