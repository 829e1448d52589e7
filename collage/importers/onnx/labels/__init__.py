"""What classifiers give that no tensor of numbers is: maps, and strings for labels."""

from collage.importers.onnx.labels.maps import without_maps
from collage.importers.onnx.labels.strings import with_numbers_for_labels

__all__ = ["with_numbers_for_labels", "without_maps"]
