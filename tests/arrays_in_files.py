"""HDF5 files as tests write and read them: arrays by name, and images with their labels in groups."""

import h5py


def write_arrays(path, arrays, chunks=None, compression=None):
    """Write arrays by name to a new file, in chunks and compressed if asked; return its path."""
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values, chunks=chunks, compression=compression)
    return path


def write_labelled(path, images, labels, counts, names=("images", "labels")):
    """Write images and their labels to a new file, so many to each group by name; return its path."""
    arrays, start = {}, 0
    for group, count in counts.items():
        for name, rows in zip(names, (images, labels), strict=True):
            arrays[f"{group}/{name}"] = rows[start : start + count]
        start += count
    return write_arrays(path, arrays)


def add_arrays(path, arrays):
    """Write arrays by name to a file that is there, in place of those of the same name."""
    with h5py.File(path, "a") as file:
        for name, values in arrays.items():
            if name in file:
                del file[name]
            file[name] = values


def add_virtual(path, name, other, inside, shape):
    """Add a virtual dataset of bytes, which are those of a whole dataset `inside` another file."""
    layout = h5py.VirtualLayout(shape, "uint8")
    layout[:] = h5py.VirtualSource(other, inside, shape)
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset(name, layout)


def read_array(path, name):
    """Return one array of a file."""
    with h5py.File(path) as file:
        return file[name][()]


def read_samples(source, start, stop):
    """Return some samples of a source, which is opened and closed for them."""
    with source.opened() as reader:
        return reader.read(start, stop)
