"""Where samples come from: HDF5 datasets and arrays, carried by name and read in ranges."""
