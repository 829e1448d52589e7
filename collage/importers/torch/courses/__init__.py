"""Exported programs with control flow: written out where known or cheap, else cut into parts.

``hoisting`` takes tensors out of bodies; ``written`` puts bodies in their places (``symbols`` as
tensors, ``guessing`` what is known beforehand, ``looping`` what has to stay a loop); ``cutter``
takes the rest apart, and ``parts`` imports what lies between.
"""
