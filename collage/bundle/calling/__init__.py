"""Calls of a bundle's functions: which variant a call is for, arrays on the way in and out."""
