"""Rules that take a rule's candidates and leave some of them out: what is not allowed, not taken by
its library, not convex, or never worth having."""
