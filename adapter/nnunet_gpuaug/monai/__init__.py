"""Dictionary transforms for MONAI: one for each transform, with MONAI's aliases, and one for a whole pipeline.

`nnunet_gpuaug.Gamma` is here `RandNNUNetGammad`, also `RandNNUNetGammaD` and `RandNNUNetGammaDict`; a step without
randomness, such as `nnunet_gpuaug.RemoveLabel`, is `NNUNetRemoveLabeld`. The keys name

- images, for a step that changes images alone: all get the same draw;
- label maps, for `NNUNetRemoveLabeld`, `NNUNetConvertSegmentationToRegionsd` and `NNUNetDownsampleSegForDSd`;
- the image and then the label map, for all others.
"""

from .. import transforms as _transforms
from .augment import AugmentBatch, NNUNetAugmentD, NNUNetAugmentd, NNUNetAugmentDict
from .factory import dictionary_transform

__all__ = ["AugmentBatch", "NNUNetAugmentD", "NNUNetAugmentDict", "NNUNetAugmentd"]

for _name in _transforms.__all__:
    _made = dictionary_transform(getattr(_transforms, _name))
    for _alias in (_made.__name__, _made.__name__[:-1] + "D", _made.__name__[:-1] + "Dict"):
        globals()[_alias] = _made
        __all__ += [_alias]
