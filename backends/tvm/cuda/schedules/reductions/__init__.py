"""What schedules of reductions are made of; ``reduction``, beside this folder, is the family.

Nothing is exported: ``plan`` says how threads share the work, ``stages`` what is summed, and
``nest`` binds the loops.
"""

__all__: list[str] = []
