"""Models and peers that this project is measured against; not part of the installed package."""
