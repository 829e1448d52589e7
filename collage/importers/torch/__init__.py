"""PyTorch's exported programs, through TVM's importer with converters of ours where it errs.

``program`` is the importer, ``archive`` reads ``.pt2`` files, and ``translate`` puts our converters
in place: one file for each family of operators, over the ``arguments`` of a node.
"""
