"""Where samples come from: HDF5 datasets and arrays, carried by name and read in ranges.

Start with `source.py`, what a source is, and `opening.py`, which opens one by its names; `array.py` takes what is in memory.
`source.py` also cuts samples into leaves, `importers/` reads other formats, and `writing.py` writes every file whole or not at
all.
"""
