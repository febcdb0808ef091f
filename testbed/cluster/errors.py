"""The one error a person sees."""


class ClusterError(Exception):
    """Something the user or the machine caused; the message says what is wrong and what would fix it."""
