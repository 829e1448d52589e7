"""Files of the linker's, read and written by ourselves: ELF of 64 bits, the lowest byte first.

What a compiler's programs would be started for takes a few milliseconds here, and a search does it
hundreds of times.
"""
