"""Networks as they are made ready for inference."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ..inference import for_inference


def folded(net: nn.Module) -> nn.Module:
    """A copy of a network in evaluation mode, with batch norm in the convolutions before it."""
    net = copy.deepcopy(net).eval()
    for block in net.modules():
        names = list(block._modules)
        for first, second in itertools.pairwise(names):
            conv, norm = block._modules[first], block._modules[second]
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                block._modules[first] = fuse_conv_bn_eval(conv, norm)
                block._modules[second] = nn.Identity()
    return net


# By the provider's name: that of the network it is made of, and how.  Both can have batch norm in
# the convolutions before it; what has units can have them packed.
PREPARED: dict[str, tuple[str, Callable[[nn.Module], nn.Module]]] = {
    "deu for inference": ("deu", for_inference),
    "NormDEU for inference": ("NormDEU", for_inference),
    "ReLU folded": ("ReLU", folded),
    "NormDEU folded, for inference": ("NormDEU", lambda net: for_inference(folded(net))),
}
