"""The one failure that ends a build."""


class BuildError(Exception):
    """What is wrong and what would fix it, for the person who started the build."""
