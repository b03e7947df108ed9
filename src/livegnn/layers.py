"""Layer specs, for a model that is written down and not imported: `lg.Model([lg.layers.GCN(weights, bias)])`."""

from livegnn.models import attention_layers, layers
from livegnn.models.attention_layers import *  # noqa: F403
from livegnn.models.layers import *  # noqa: F403

__all__: list[str] = []
__all__ += attention_layers.__all__
__all__ += layers.__all__
