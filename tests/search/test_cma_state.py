import json
import pickle

import cmaes
import numpy as np
import pytest

from fltune.search.cma_state import from_plain, to_plain

BOUNDS = np.array([[0.0, 1.0], [0.0, 1.0]])


def started(prefix):
    """A CMA-ES after two generations, and the name of its attributes."""
    if prefix == "cmawm:":
        made = cmaes.CMAwM(np.full(2, 0.5), 0.3, BOUNDS, np.array([0.0, 0.25]), seed=1)
    else:
        kind = cmaes.SepCMA if prefix == "sepcma:" else cmaes.CMA
        made = kind(np.full(2, 0.5), 0.3, BOUNDS, seed=1)
    for _ in range(2):
        asked = [made.ask() for _ in range(made.population_size)]
        points = [a[1] if prefix == "cmawm:" else a for a in asked]
        made.tell([(x, float(x.sum())) for x in points])
    return made


def attrs(prefix, text):
    """As Optuna writes them, in pieces."""
    pieces = [text[i : i + 100] for i in range(0, len(text), 100)]
    return {f"{prefix}optimizer:{i}": piece for i, piece in enumerate(pieces)}


@pytest.mark.parametrize("prefix", ["cma:", "sepcma:", "cmawm:"])
def test_a_cma_es_goes_on_from_plain_values_as_it_would_have(prefix):
    text = pickle.dumps(started(prefix)).hex()
    made = pickle.loads(bytes.fromhex(text))  # what Optuna itself goes on with
    given = {f"{prefix}generation": 2, **attrs(prefix, text)}
    plain = json.loads(json.dumps(to_plain(given), allow_nan=False))
    assert set(plain) == {f"{prefix}generation", f"{prefix}optimizer"}
    back = from_plain(plain)
    assert back[f"{prefix}generation"] == 2
    again = pickle.loads(bytes.fromhex(back[f"{prefix}optimizer:0"]))
    assert type(again) is type(made)
    for one in (made, again):
        one._rng.seed(7)
    assert np.array_equal(np.array(made.ask()), np.array(again.ask()))
    assert to_plain(back) == plain


class Trap:
    def __reduce__(self):
        return pytest.fail, ("a pickle of a record was read",)


def test_a_pickle_in_a_record_is_not_handed_on():
    text = pickle.dumps(Trap()).hex()
    found = from_plain({"cma:generation": 1, "cma:optimizer:0": text, "cma:optimizers": text})
    assert found == {"cma:generation": 1}
    with pytest.raises(ValueError, match="found 'Trap'; must be one of CMA, SepCMA, CMAwM"):
        from_plain({"cma:optimizer": {"class": "Trap", "state": {}}})


def test_other_attributes_pass():
    plain = {"NSGAIISampler:generation": 2, "x_for_tell": [0.5]}
    assert to_plain(plain) == from_plain(plain) == plain
