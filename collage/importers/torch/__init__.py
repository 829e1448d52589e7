"""PyTorch's exported programs, through TVM's importer with converters of ours where it errs.

``program`` is the importer, ``archive`` reads ``.pt2`` files, and ``translate`` puts the converters
of ``operators`` in place.
"""
