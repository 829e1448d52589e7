"""What is tried once whole models were compared.

``corrected`` searches again with costs as they are inside those models, ``second_look`` without
what made one of them wrong, and ``refined`` tries changes to the winner on end-to-end time.
"""
