"""Every registered algorithm works in the precision that it is given, and in no other."""

import pytest
import torch
from any_method import Run, case, every
from torch.utils._python_dispatch import TorchDispatchMode

from fltune.federation.compression import TopK


class Watch(TorchDispatchMode):
    """Notes every operation that makes float32 numbers other than whole ones, which are exact."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else [result]:
            single = isinstance(value, torch.Tensor) and value.dtype == torch.float32
            if single and "empty" not in str(func) and not torch.equal(value, value.round()):
                self.found.add(str(func))
        return result


def floats(run):
    """The dtypes of all that a run keeps."""
    kept, held = run.recorded, [run.module.x, run.module.client_state.template]
    everything = [*held, run.end, kept.x, kept.d, kept.state, kept.server, kept.clients]
    return {value.dtype for value in tensors(everything) if value.is_floating_point()}


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)


@every
@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_double_precision_throughout(name, strategy):
    """Not one number of a round in float64 passes through float32."""
    changes = {"strategy": strategy}
    if case(name).random:
        changes["compressor"] = TopK(k=3)
    run = Run(name, **changes)
    with Watch() as watch:
        run.fit()
    assert watch.found == set()
    assert floats(run) == {torch.float64}


@every
def test_single_precision_is_kept_and_near(name):
    single, double = (Run(name, dtype=t).fit() for t in (torch.float32, torch.float64))
    assert floats(single) == {torch.float32}
    if case(name).random:
        return  # a rounding may tip a random level
    torch.testing.assert_close(single.x.double(), double.x, rtol=1e-4, atol=1e-4)
