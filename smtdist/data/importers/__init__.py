"""Images from other formats into HDF5: folder trees, arrays, IDX, CIFAR, WebDataset shards and Parquet files.

A `Listing` knows what a source holds and yields it in order in bounded batches; `run.import_images` decodes
them in threads and writes them in order through a journal, so that a killed import goes on where it was.
"""
