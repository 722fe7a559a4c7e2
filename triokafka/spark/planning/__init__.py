"""Planning on the driver: options, offsets, limits, and the split of offset ranges into Spark tasks."""
