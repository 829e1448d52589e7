"""How a report looks: on a page, in a terminal, in a notebook, and as two drawings.

The package above exports what is public.
"""
