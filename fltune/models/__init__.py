"""Networks: the papers' own, by name, and any ``torch.nn.Module`` by import path."""

from fltune.registry import Registry

MODELS = Registry(
    "model",
    {
        "mlp": "fltune.models.mlp:MLP",
        "linear": "fltune.models.linear:Linear",
    },
)
