"""The bridge to nnU-Net: the only part that imports nnunetv2 or batchgeneratorsv2."""
