"""What a user of the sample operator does and sees."""

from __future__ import annotations

from tests.integration.kube.sample_operator import MANAGED, widget_resource
from tests.integration.kube.waiting import eventually
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.errors import ApiError
from trtllm_operator.kube.resource import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, Obj

_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"count": {"type": "integer", "maximum": 5}, "color": {"type": "string"}},
        },
        "status": {"type": "object", "properties": {"made": {"type": "integer"}, "note": {"type": "string"}}},
    },
}


class World:
    """Widgets of one namespace, of a kind of its own."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.group = f"{namespace}.example.dev"
        self.widget = widget_resource(self.group)

    async def install(self) -> None:
        """Define the kind."""
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": _SCHEMA},
            "subresources": {"status": {}},
        }
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"widgets.{self.group}"},
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [version],
            },
        }
        await self.client.apply(CUSTOM_RESOURCE_DEFINITION, definition)

    async def uninstall(self) -> None:
        """Take the kind away, and with it all Widgets."""
        definition = await self.client.get(CUSTOM_RESOURCE_DEFINITION, "", f"widgets.{self.group}")
        await self.client.delete(CUSTOM_RESOURCE_DEFINITION, definition)

    async def is_served(self) -> bool:
        try:
            await self.client.list(self.widget, namespace=self.namespace)
        except ApiError as error:
            if error.is_not_found or error.is_overload:
                return False
            raise
        return True

    async def make(self, name: str, *, count: int = 1, color: str = "red") -> Obj:
        """Apply a Widget as a user does."""
        body = {
            "apiVersion": self.widget.api_version,
            "kind": "Widget",
            "metadata": {"namespace": self.namespace, "name": name},
            "spec": {"count": count, "color": color},
        }
        return await self.client.apply(self.widget, body)

    async def get(self, name: str) -> Obj:
        return await self.client.get(self.widget, self.namespace, name)

    async def children(self) -> dict[str, str]:
        """The color of each ConfigMap the operator made, by name."""
        found = await self.client.list(CONFIG_MAP, namespace=self.namespace, label_selector=f"{MANAGED}=true")
        return {obj["metadata"]["name"]: obj["data"]["color"] for obj in found}

    async def delete_child(self, name: str) -> None:
        child = await self.client.get(CONFIG_MAP, self.namespace, name)
        await self.client.delete(CONFIG_MAP, child)

    async def shows(self, expected: dict[str, str], *, seconds: float = 60) -> None:
        """Wait until exactly these children exist."""

        async def reached() -> bool:
            return await self.children() == expected

        await eventually(reached, f"the children {expected}", seconds=seconds)

    async def made(self, name: str, count: int, *, seconds: float = 60) -> None:
        """Wait until the Widget's status says so."""

        async def reached() -> bool:
            return (await self.get(name)).get("status") == {"made": count}

        await eventually(reached, f"status.made of {name} to be {count}", seconds=seconds)
