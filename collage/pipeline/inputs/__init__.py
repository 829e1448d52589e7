"""What whole models are run on: the user's samples, or such as keep a network in its working range.

``samples`` gives them with what must come out; ``drawing`` draws where nobody gave any, within the
``working_range`` that a network's batch norms tell. ``later`` has that done in the background.
"""
