"""A broker's logs compared with a plain model, on a disk that crashes; see `machine`."""
