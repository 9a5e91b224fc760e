"""Differential Equation Units: neurons that learn their own activation function.

Each unit is the closed-form solution of ``a y'' + b y' + c y = u(t)``, from five learnt numbers.
"""

from . import functional as functional
from . import init as init
from . import reference as reference
from ._explain import formula as formula
from ._explain import subspaces as subspaces
from ._groups import param_groups as param_groups
from .inference import PackedDEU as PackedDEU
from .inference import PackedNormDEU as PackedNormDEU
from .inference import for_inference as for_inference
from .modules import DEU as DEU
from .modules import LazyDEU as LazyDEU
from .norm import NormDEU as NormDEU

__version__ = "0.1.0.dev0"
