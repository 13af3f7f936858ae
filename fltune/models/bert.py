"""BERT with a linear layer on top (Devlin et al., 2019), for sentences as token ids.

Needs the extra ``text``. Trained by the loop strategy alone: the dropout of attention weights is no
module, so it draws from the global generator, which the loop seeds by (seed, round, client).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from fltune.extras import require

SIZES = {"tiny": (2, 128), "small": (4, 512), "base": (12, 768)}
"""Layers and width; a head of attention is 64 wide. The smaller ones are Turc et al.'s (2019)."""

ATTENTION = "eager"
"""Plain matrix products: fused kernels add up in an order of their own, not always the same."""


class Bert(nn.Module):
    """BERT - pooled output of the first token - dropout - Linear.

    109,483,778 parameters with ``bert-base-uncased`` and two classes. Token 0 is padding, which
    attention does not see.

    Args:
        input_shape: (L,), tokens of a sentence; given by the data set.
        num_classes: outputs; given by the data set.
        pretrained: name of published weights, fetched once, or a folder that holds them; null:
            random ones.
        config: size of a network with random weights: ``tiny``, ``small`` or ``base``.
        vocab_size: different tokens of a network with random weights.

    Raises:
        ValueError: samples that are no sentences or too long, an unknown size, or weights that
            cannot be loaded.
        ConfigError: transformers is not installed.
    """

    stackable: ClassVar[bool] = False

    def __init__(
        self,
        input_shape: Sequence[int],
        num_classes: int,
        pretrained: str | None = "bert-base-uncased",
        config: Literal["tiny", "small", "base"] = "base",
        vocab_size: int = 30522,
    ) -> None:
        super().__init__()
        transformers = require("transformers", "text", "model bert")
        if pretrained is None:
            self.encoder = transformers.BertModel(_config(transformers, config, vocab_size))
        else:
            self.encoder = _pretrained(transformers, pretrained)
        settings = self.encoder.config
        longest = settings.max_position_embeddings
        if len(input_shape) != 1 or input_shape[0] > longest:
            raise ValueError(
                f"found samples of shape {list(input_shape)}; must be sentences of token ids [L], "
                f"at most {longest} long"
            )
        self.dropout = nn.Dropout(settings.hidden_dropout_prob)
        self.head = nn.Linear(settings.hidden_size, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, num_classes] for int64 token ids [B, L].

        Raises:
            ValueError: x holds no whole numbers.
        """
        if x.is_floating_point():
            raise ValueError(f"found {x.dtype}; must be int64 token ids")
        pooled = self.encoder(input_ids=x, attention_mask=(x != 0).long()).pooler_output
        return self.head(self.dropout(pooled))


def _config(transformers: Any, size: str, vocab_size: int) -> Any:
    if size not in SIZES:
        raise ValueError(f"config = {size!r}: must be one of {', '.join(SIZES)}")
    if vocab_size < 1:
        raise ValueError(f"vocab_size = {vocab_size}: must be >= 1")
    layers, width = SIZES[size]
    return transformers.BertConfig(
        vocab_size=vocab_size,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        attn_implementation=ATTENTION,
    )


def _pretrained(transformers: Any, name: str) -> nn.Module:
    try:
        return transformers.BertModel.from_pretrained(name, attn_implementation=ATTENTION)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"pretrained = {name!r} cannot be loaded ({error}); name published BERT weights or a "
            "folder that holds them, or set it to null for random weights"
        ) from error
