"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# A crowded machine makes any example slow now and then, which says nothing of the code. Else as it
# was: under continuous integration Hypothesis draws the same examples each time.
settings.register_profile("collage", parent=settings.default, deadline=None)
settings.load_profile("collage")
