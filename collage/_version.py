"""The version, where every part can import it without importing the rest."""

__version__ = "0.1.0"
