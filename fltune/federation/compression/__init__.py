"""Compression of what clients send: one mechanism for any method's uplink.

>>> QSGD(levels=4).bits(1000)
4032.0
"""

from fltune.federation.compression.base import BITS_PER_FLOAT, Blockwise, Compressor, Grid
from fltune.federation.compression.quantisers import QSGD, Affine, NoisyAffine
from fltune.federation.compression.sparsifiers import RandK, TopK
from fltune.registry import Registry

COMPRESSORS = Registry(
    "compressor",
    {
        "identity": "fltune.federation.compression:Compressor",
        "grid": "fltune.federation.compression:Grid",
        "qsgd": "fltune.federation.compression:QSGD",
        "affine": "fltune.federation.compression:Affine",
        "noisy_affine": "fltune.federation.compression:NoisyAffine",
        "topk": "fltune.federation.compression:TopK",
        "randk": "fltune.federation.compression:RandK",
    },
    bases=("fltune.federation.compression:Compressor",),
)

__all__ = [
    "BITS_PER_FLOAT",
    "COMPRESSORS",
    "QSGD",
    "Affine",
    "Blockwise",
    "Compressor",
    "Grid",
    "NoisyAffine",
    "RandK",
    "TopK",
]
