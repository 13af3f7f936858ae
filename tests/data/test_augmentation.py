"""Random crops and flips: what they do, how often, and that nothing but the key decides them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune.data.augmentation import Augmentation
from fltune.data.dataset import RawData
from fltune.data.federated import FederatedData, Split
from fltune.data.validation import split_validation
from fltune.errors import DataError
from fltune.randomness import client_keys, step_keys


def images(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def keys(n, step=0, seed=0):
    return step_keys(client_keys(seed, 0, torch.arange(n)), step)


def windows(image, padding, flip, fill):
    """All that a crop (and a flip) of one image [C, H, W] can give, by slicing: shift -> image."""
    channels, height, width = image.shape
    padded = torch.tensor(fill).double().view(-1, 1, 1).repeat(1, height + 2 * padding, 1)
    padded = padded.expand(channels, -1, -1).repeat(1, 1, width + 2 * padding)
    padded[:, padding : padding + height, padding : padding + width] = image
    found = {}
    for down in range(2 * padding + 1):
        for right in range(2 * padding + 1):
            window = padded[:, down : down + height, right : right + width]
            found[down, right, False] = window
            if flip:
                found[down, right, True] = window.flip(-1)
    return found


def which(image, original, augmentation):
    """The one (down, right, mirrored) that made an image out of the original."""
    fill = augmentation.fill
    options = windows(original, augmentation.crop_padding, augmentation.flip, fill)
    matches = [k for k, window in options.items() if torch.equal(image, window)]
    assert len(matches) == 1
    return matches[0]


@pytest.mark.parametrize("fill", [(0.0,), (-1.5, -2.0, -0.25)])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 4])
def test_every_image_is_a_window_of_its_padded_self(padding, flip, fill):
    augmentation = Augmentation(padding, flip, fill)
    x = images(4, 9, 3, 6, 5)
    out = augmentation(x, keys(4))
    assert (out.shape, out.dtype) == (x.shape, x.dtype)
    found = {
        which(out[c, b], x[c, b], augmentation) for c in range(len(x)) for b in range(len(x[0]))
    }
    assert len(found) > 1 or (padding == 0 and not flip)


def test_without_padding_and_flip_nothing_changes():
    x = images(2, 3, 1, 4, 4)
    assert torch.equal(Augmentation()(x, keys(2)), x)


def test_all_windows_are_equally_likely():
    """Chi-square over 3 x 3 x 2 windows and 36,000 images, at a false-alarm bound of 1e-6."""
    augmentation = Augmentation(1, True)
    picture = images(1, 3, 3)
    x = picture.expand(40, 900, 1, 3, 3)
    out = augmentation(x, keys(40)).flatten(0, 1)
    options = torch.stack(list(windows(picture, 1, True, (0.0,)).values()))
    counts = (out.unsqueeze(1) == options).flatten(2).all(2).sum(0)
    assert counts.sum() == 36_000
    expected = 36_000 / 18
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < 60.2  # chi-square of 17 degrees exceeds it once in 10^6


def test_windows_of_a_batch_are_independent():
    """Neighbours' flips agree in half of 40,000 pairs; 5.5 sd off is a false alarm in 10^7."""
    x = torch.arange(2.0).expand(20, 2000, 1, 1, 2)
    flipped = Augmentation(flip=True)(x, keys(20))[..., 0, 0, 0] == 1
    for other in (flipped.roll(1, 0), flipped.roll(1, 1)):
        agreed = (flipped == other).double().mean()
        assert (agreed - 0.5).abs() < 5.5 * 0.5 / 40_000**0.5


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 3), st.booleans(), st.integers(0, 99))
def test_a_pure_function_of_key_and_position(clients, batch, padding, flip, seed):
    augmentation = Augmentation(padding, flip, (0.5, 0.25))
    x, key = images(clients, batch, 2, 4, 5, seed=seed), keys(clients, seed=seed)
    torch.manual_seed(seed)
    out = augmentation(x, key)
    torch.manual_seed(seed + 1)
    assert torch.equal(augmentation(x, key), out)
    for client in range(clients):  # whoever else is in the cohort
        assert torch.equal(augmentation(x[client], key[client]), out[client])
    for cut in range(1, batch + 1):  # whatever comes after a sample, such as padding
        assert torch.equal(augmentation(x[:, :cut], key), out[:, :cut])


def test_steps_clients_and_seeds_draw_anew():
    augmentation = Augmentation(4, True)
    x = images(1, 32, 1, 12, 12)
    first = augmentation(x, keys(1))
    other = [keys(1, step=1), keys(2)[1:], keys(1, seed=1)]
    assert not any(torch.equal(augmentation(x, key), first) for key in other)


def test_a_negative_padding_is_an_error():
    with pytest.raises(ValueError, match="crop_padding = -1 is not allowed; must be >= 0"):
        Augmentation(crop_padding=-1)


@pytest.mark.parametrize("shape", [(5, 64), (5, 8, 8), (5, 2, 8, 8)])
def test_only_images_can_be_augmented(shape):
    with pytest.raises(DataError, match="cannot be cropped or flipped; must be images"):
        Split(torch.zeros(shape), torch.zeros(5).long(), Augmentation(1, fill=(0.0, 0.0, 0.0)))


def test_only_training_samples_keep_it_on_their_way_to_the_clients():
    augmentation = Augmentation(2)
    x, y = images(20, 1, 4, 4), torch.arange(20) % 2
    train = Split(x, y, augmentation).to("cpu", torch.float32)
    assert (train.augmentation, train.x.dtype) == (augmentation, torch.float32)
    raw = RawData(Split(x, y, augmentation), Split(x, y), num_classes=2)
    kept, held_out = split_validation(raw.train.y, 0.2, seed=0)
    assert len(kept) + len(held_out) == 20
    data = FederatedData.from_clients(
        raw.train, raw.test, raw.test, [torch.arange(20)], num_classes=2
    ).to("cpu", torch.float32)
    assert data.train.augmentation == augmentation
    assert (data.val.augmentation, data.test.augmentation) == (None, None)
