"""Whether what is there already says what is wanted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal
from typing import Any, NamedTuple

#: Lists that Kubernetes merges by key, by the name of the field that holds them. Where there are several ways, the
#: first whose fields the wanted items have. All other lists are one value: equal in length and order.
_MERGE_KEYS: dict[str, tuple[tuple[str, ...], ...]] = {
    "containers": (("name",),),
    "initContainers": (("name",),),
    "ephemeralContainers": (("name",),),
    "volumes": (("name",),),
    "env": (("name",),),
    "volumeMounts": (("mountPath",),),
    "volumeDevices": (("devicePath",),),
    "ports": (("containerPort", "protocol"), ("containerPort",), ("port", "protocol"), ("port",)),
    "conditions": (("type",),),
    "ownerReferences": (("uid",),),
    "imagePullSecrets": (("name",),),
    "secrets": (("name",),),
    "hostAliases": (("ip",),),
    "topologySpreadConstraints": (("topologyKey", "whenUnsatisfiable"),),
    "resourceClaims": (("name",),),
    "schedulingGates": (("name",),),
}
#: Sets of plain values that others may add to.
_SETS = frozenset({"finalizers"})
#: Fields whose values, or whose members' values, are quantities.
_QUANTITIES = frozenset({"limits", "requests", "capacity", "hard", "overhead", "sizeLimit", "storage"})

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXPONENTS = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_POWERS = {power: suffix for suffix, power in _BINARY.items()}
_NANO = Decimal("1e-9")
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]))?")


class Difference(NamedTuple):
    """One place where what is there does not say what is wanted; `live` is None where there is nothing."""

    path: str
    live: Any
    desired: Any


def covers(live: Any, desired: Any) -> bool:
    """Whether applying `desired` would change nothing: `live` has all of it, whatever else it has."""
    return next(differences(live, desired), None) is None


def differences(live: Any, desired: Any, path: str = "") -> Iterator[Difference]:
    """Where `live` does not say what `desired` says, in the order of `desired`.

    Objects are compared by the wanted fields alone; lists that Kubernetes merges by key, by the wanted items alone;
    quantities by value. Fields only `live` has are no difference: others, and defaults, may add them.
    """
    yield from _differences(live, desired, path, field="", quantity=False)


def _differences(live: Any, desired: Any, path: str, *, field: str, quantity: bool) -> Iterator[Difference]:
    if isinstance(desired, dict):
        if not isinstance(live, dict):
            yield Difference(path, live, desired)
            return
        for name, value in desired.items():
            yield from _differences(
                live.get(name),
                value,
                f"{path}.{name}" if path else name,
                field=name,
                quantity=quantity or name in _QUANTITIES,
            )
    elif isinstance(desired, list):
        if not isinstance(live, list):
            yield Difference(path, live, desired)
        elif field in _SETS:
            if missing := [value for value in desired if value not in live]:
                yield Difference(path, live, missing)
        elif keys := _merge_keys(field, desired):
            there = {_item_key(item, keys): item for item in live if isinstance(item, dict)}
            for item in desired:
                name = "/".join(str(item[key]) for key in keys)
                yield from _differences(
                    there.get(_item_key(item, keys)), item, f"{path}[{name}]", field="", quantity=quantity
                )
        elif len(live) != len(desired):
            yield Difference(path, live, desired)
        else:
            for index, (have, want) in enumerate(zip(live, desired, strict=True)):
                yield from _differences(have, want, f"{path}[{index}]", field="", quantity=quantity)
    elif live != desired and not (quantity and _same_quantity(live, desired)):
        yield Difference(path, live, desired)


def _merge_keys(field: str, items: list[Any]) -> tuple[str, ...] | None:
    for keys in _MERGE_KEYS.get(field, ()):
        if all(isinstance(item, dict) and all(key in item for key in keys) for item in items):
            return keys
    return None


def _item_key(item: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(key) for key in keys)


def _same_quantity(live: Any, desired: Any) -> bool:
    try:
        return canonical_quantity(live) == canonical_quantity(desired)
    except ValueError:
        return False


def canonical_quantity(quantity: str | int | float) -> str:
    """A resource quantity as the API server writes it back: "1000m" is "1", "1024Mi" is "1Gi", "0.5" is "500m".

    No fraction, the largest suffix that needs none, and the kind of suffix it came with; the rules are those of
    `k8s.io/apimachinery/pkg/api/resource`. Raises ValueError for what is no quantity.
    """
    if not (match := _QUANTITY.fullmatch(str(quantity))):
        raise ValueError(f"{quantity!r} is no resource quantity")
    number, exponent, suffix = match[1], match[2] or "", match[3] or ""
    value = Decimal(number + exponent)
    if suffix in _BINARY:
        value *= 1024 ** _BINARY[suffix]
        if abs(value) >= 1024:
            return _binary(value)
    else:
        value = value.scaleb(_DECIMAL[suffix])
    return _decimal(value, scientific=bool(exponent))


def _binary(value: Decimal) -> str:
    whole = int(value.to_integral_value(ROUND_CEILING))
    power = 0
    while whole % 1024 == 0 and power < 6:
        whole //= 1024
        power += 1
    return f"{whole}{_POWERS.get(power, '')}"


def _decimal(value: Decimal, *, scientific: bool) -> str:
    nano = int((value / _NANO).to_integral_value(ROUND_CEILING))
    if nano == 0:
        return "0"
    exponent = -9
    while nano % 1000 == 0 and exponent < 18:
        nano //= 1000
        exponent += 3
    if scientific:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_EXPONENTS[exponent]}"
