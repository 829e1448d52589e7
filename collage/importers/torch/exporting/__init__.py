"""Modules in memory as exported programs: what is changed in them while ``torch.export`` traces
them, a kind of change a file."""
