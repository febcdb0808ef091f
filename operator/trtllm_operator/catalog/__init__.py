"""Releases of TensorRT-LLM, GPUs and model families, as data with its sources. Nothing about a release is in code."""

from .gpus import Gpu, ProductLabel, parse_product
from .loader import Catalog, UnknownRelease, load_catalog
from .merge import CatalogError
from .release import Command, Family, Flag, Format, KvCacheFormat, Release

__all__ = [
    "Catalog",
    "CatalogError",
    "Command",
    "Family",
    "Flag",
    "Format",
    "Gpu",
    "KvCacheFormat",
    "ProductLabel",
    "Release",
    "UnknownRelease",
    "load_catalog",
    "parse_product",
]
