"""Ways to choose among candidates, one a file; the package above exports what is public."""
