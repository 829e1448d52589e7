"""Whole models: compiled several at a time, then timed against each other on one device.

``model_scheduler`` has ``model_builder`` compile them and a ``model_timer`` time them: on this
machine that of ``end_to_end``, whose rules for those who take part (``contestants``) others share.
"""

from collage.cost.measure.whole_models.end_to_end import EndToEndTimer
from collage.cost.measure.whole_models.model_builder import ModelJob, ModelResult
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel

__all__ = ["EndToEndQuestion", "EndToEndTimer", "ModelJob", "ModelResult", "WholeModel"]
