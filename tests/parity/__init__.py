"""The transforms of this package against batchgeneratorsv2's, with the same drawn values and in distribution."""
