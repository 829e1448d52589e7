"""The zoo: networks of every family, and how many of them come out right, in time, and how fast."""
