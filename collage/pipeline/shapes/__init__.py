"""Shapes that vary: buckets of them, and which may be padded to the next.

``buckets`` makes the sets of shapes that are compiled of what the user wrote; ``padding`` proves,
over two imports of a model, that an axis may be padded, by the rules of ``computing`` and
``moving``.
"""
