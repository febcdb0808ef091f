"""Three GPUs answer as one does: each rank holds a third of the heads, and a wrong rank would be heard."""

from __future__ import annotations

import pytest

from demo.kubectl import Kubectl

from .smollm2 import answer, gpus_of, llmengine, wait_ready

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
QUESTION = "Name three primary colors."


def test_tensor_parallelism_of_three_answers_as_one_does(namespace: Kubectl) -> None:
    namespace.apply(llmengine("tp1"), llmengine("tp3", parallelism={"tensor": 3}, build={"workers": 3}))
    wait_ready(namespace, "tp1")
    wait_ready(namespace, "tp3")
    one, three = (answer(namespace, question=QUESTION, name=name) for name in ("tp1", "tp3"))
    assert one
    assert three == one
    (pod,) = namespace.items("pods", "-l", "llmengine.dev/engine=tp3,llmengine.dev/target=h100")
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "3"
    engines = [a for a in namespace.items("engineartifacts") if a["spec"]["type"] == "Engine"]
    assert sorted(gpus_of(namespace, engine) for engine in engines) == [1, 3], "one GPU for each rank built at once"
    models = [a for a in namespace.items("engineartifacts") if a["spec"]["type"] == "Model"]
    assert len(models) == 1, "both share one download"
