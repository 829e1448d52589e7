"""What a converter raises."""


class RefusedError(Exception):
    """A node that cannot be imported; the message says why."""
