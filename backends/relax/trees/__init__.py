"""Ensembles of decision trees as one operator, and the tensor program that computes it."""

from collage.backends.relax.trees.nodes import Branches, packed
from collage.backends.relax.trees.operator import NAME, Ensemble, tree_ensemble

__all__ = ["NAME", "Branches", "Ensemble", "packed", "tree_ensemble"]
