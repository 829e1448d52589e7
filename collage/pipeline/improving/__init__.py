"""What is tried once whole models were compared.

``corrected`` searches again with costs as they are inside those models, ``second_look`` without
what made one of them wrong, and ``refined`` tries changes to the winner on end-to-end time.
"""

from collage.pipeline.improving.refined import refine_winner
from collage.pipeline.improving.second_look import SecondLook

__all__ = ["SecondLook", "refine_winner"]
