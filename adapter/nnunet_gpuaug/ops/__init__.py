"""The arithmetic: pure functions of tensors and drawn values, for one plane (one channel of one row) or one row."""
