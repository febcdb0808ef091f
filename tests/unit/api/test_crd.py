"""The generated CRDs: up to date, described, bounded, and without defaults that would change what Git holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from trtllm_operator.api import crd

ROOT = Path(__file__).parents[3]
CRDS = crd.crds()


def schema(name: str) -> dict[str, Any]:
    (version,) = CRDS[name]["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"])


def walk(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below `node` with its path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", "[*]")):
        if isinstance(node.get(key), dict):
            yield from walk(node[key], path + suffix)


def fields() -> list[tuple[str, dict[str, Any]]]:
    """Every field of spec and status of every CRD."""
    found = [pair for name in CRDS for part in ("spec", "status") for pair in walk_part(name, part)]
    assert len(found) > 100
    return found


def walk_part(name: str, part: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return walk(schema(name)["properties"][part], f"{name.removesuffix('.yaml')}.{part}")


@pytest.mark.parametrize("directory", crd.DIRECTORIES, ids=str)
def test_the_files_are_what_the_models_say(directory: Path) -> None:
    stored = {path.name: path.read_text() for path in (ROOT / directory).glob("*s.yaml")}
    wanted = {name: crd.render(made) for name, made in CRDS.items()}
    assert stored == wanted, f"{directory} is not up to date: run `python -m trtllm_operator.api.crd`"


def test_the_command_writes_the_files(tmp_path: Path) -> None:
    crd.main([str(tmp_path / "new")])
    assert {p.name: yaml.safe_load(p.read_text()) for p in (tmp_path / "new").iterdir()} == CRDS


def test_every_field_is_described() -> None:
    silent = [
        path for path, node in fields() if not path.endswith(("[]", "[*]")) and len(node.get("description", "")) < 5
    ]
    assert silent == [], "kubectl explain says nothing of these fields"


def test_every_string_list_and_map_is_bounded() -> None:
    def unbounded(node: dict[str, Any]) -> bool:
        match node.get("type"):
            case "string":
                return "enum" not in node and "maxLength" not in node
            case "array":
                return "maxItems" not in node
            case "object":
                return "properties" not in node and "maxProperties" not in node
            case None:
                return "maxLength" not in node
        return False

    assert [path for path, node in fields() if unbounded(node)] == [], "the cost of CEL rules needs bounds"


def test_every_integer_of_the_spec_has_a_minimum() -> None:
    assert [p for p, n in fields() if n.get("type") == "integer" and "minimum" not in n and "enum" not in n] == []


def test_the_spec_has_no_defaults() -> None:
    assert [path for path, node in fields() if "default" in node and not path.endswith(".status")] == []


@pytest.mark.parametrize("name", CRDS)
def test_an_object_nobody_has_looked_at_yet_is_not_taken_for_finished(name: str) -> None:
    assert schema(name)["properties"]["status"]["default"] == {"observedGeneration": -1}


@pytest.mark.parametrize("name", CRDS)
def test_lists_of_named_things_merge_by_name(name: str) -> None:
    def has_key(node: dict[str, Any]) -> bool:
        return bool({"name", "type"} & set(node["items"].get("required", ())))

    lists = [(p, n) for p, n in walk(schema(name), name) if n.get("type") == "array" and has_key(n)]
    assert lists
    assert [p for p, n in lists if n["x-kubernetes-list-type"] != "map"] == []
