"""A broker's logs against a plain model, over a disk that crashes; see `machine`."""
