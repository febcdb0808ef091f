"""Records the objects of a small simulated world as the operator of the checked-out commit writes them.

    git worktree add --detach /tmp/before 7c359be
    cd /tmp/before && python <this file> > <this directory>/7c359be.jsonl

`smol` serves on two GPU generations and `any` on every GPU; `fp8` has its model, and its checkpoint is being made.
"""

from __future__ import annotations

import importlib
import json
import sys

sys.path[:0] = [".", "operator"]
try:
    simulation = importlib.import_module("tests.unit.engines.simulation")
except ModuleNotFoundError:
    simulation = importlib.import_module("tests.unit.reconcile.simulation")


def record() -> list[object]:
    world = simulation.World()
    world.put(simulation.engine())
    world.put(simulation.engine("any", targets=[{"name": "gpu", "gpu": {"any": {}}, "replicas": 2}]))
    world.run_everything()
    other = {"huggingFace": {"repo": "owner/other", "revision": "main", "tokenSecretRef": {"name": "hub-token"}}}
    target = {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
    world.put(
        simulation.engine(
            "fp8",
            model=other,
            precision={"quantization": "fp8"},
            targets=[target],
            build={"nodeSelector": {"pool": "builders"}, "maxAttempts": 5},
        )
    )
    world.settle()
    for _ in range(2):  # the inspection, then the model
        world.start_jobs()
        for job in world.unfinished_jobs():
            world.finish(job)
        world.settle()
    world.start_jobs()
    world.settle()
    return [obj for resource in world.cache.resources for obj in world.cache.find(resource)]


if __name__ == "__main__":
    sys.stdout.writelines(json.dumps(obj) + "\n" for obj in record())
