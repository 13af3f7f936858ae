"""Drivers of ``benchmarks/peers.py``: one module per library, each run by the library's own Python.

``task`` is what all of them import; it needs NumPy alone. ``network`` needs PyTorch.
"""
