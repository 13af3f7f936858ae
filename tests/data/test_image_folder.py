import numpy as np
import pytest
import torch
from PIL import Image

from fltune.data.image_folder import ImageFolder
from fltune.errors import DataError

RED, BLUE, GREY = (250, 0, 0), (0, 0, 250), (100, 100, 100)


def put(path, colour, size=(12, 12), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).convert(mode).save(path)


@pytest.fixture
def root(tmp_path):
    put(tmp_path / "train" / "dog" / "b.png", RED)
    put(tmp_path / "train" / "dog" / "a.JPG", GREY, (30, 7))
    put(tmp_path / "train" / "cat" / "1.jpeg", BLUE)
    put(tmp_path / "train" / "eel" / "1.png", GREY, mode="P")
    put(tmp_path / "test" / "dog" / "c.png", GREY, mode="L")
    put(tmp_path / "test" / "cat" / "2.png", BLUE)
    (tmp_path / "train" / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "train" / ".hidden").mkdir()
    return tmp_path


def test_classes_are_sorted_and_images_squared(root):
    raw = ImageFolder(root=str(root), size=8).load()
    assert raw.num_classes == 3
    assert raw.train.x.shape == (4, 3, 8, 8)
    assert (raw.train.x.dtype, raw.train.y.dtype) == (torch.float32, torch.int64)
    assert raw.train.y.tolist() == [0, 1, 1, 2]  # cat, dog (a before b), eel
    assert raw.test.y.tolist() == [0, 1]
    expected = torch.tensor([BLUE, GREY, RED, GREY]) / 255
    colours = raw.train.x.mean((2, 3))
    torch.testing.assert_close(colours, expected, rtol=0, atol=0.01)  # jpeg is lossy


def test_grey(root):
    raw = ImageFolder(root=str(root), size=5, channels=1).load()
    assert raw.train.x.shape == (4, 1, 5, 5)
    torch.testing.assert_close(raw.test.x[1], torch.full((1, 5, 5), 100 / 255))


def test_pixels_keep_their_place(tmp_path):
    picture = np.random.default_rng(0).integers(0, 256, (6, 6, 3), np.uint8)
    for part in ("train", "test"):
        put(tmp_path / part / "a" / "1.png", RED)
        Image.fromarray(picture).save(tmp_path / part / "a" / "2.png")
    x = ImageFolder(root=str(tmp_path), size=6).load().train.x[1]
    torch.testing.assert_close(x, torch.from_numpy(picture).permute(2, 0, 1) / 255)


def test_augmented_with_black(root):
    raw = ImageFolder(root=str(root), crop_padding=2, flip=True).load()
    assert raw.train.augmentation.fill == (0.0,)
    assert raw.test.augmentation is None


@pytest.mark.parametrize("content", [b"", b"no image", "half"])
def test_a_damaged_image_is_named(root, content):
    path = root / "train" / "dog" / "b.png"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(DataError, match=r"b.png: corrupt or no image .*; mend or remove it"):
        ImageFolder(root=str(root)).load()


def test_missing_folders(root):
    with pytest.raises(DataError, match=r"train: not found; set data\.root to a folder"):
        ImageFolder(root=str(root / "gone")).load()
    (root / "test" / "bat").mkdir()
    with pytest.raises(DataError, match=r"there is no class bat in .*; found there cat, dog, eel"):
        ImageFolder(root=str(root)).load()


def test_folders_without_images(root):
    (root / "train" / "fox").mkdir()
    with pytest.raises(DataError, match=r"fox: holds no image \(.png, .jpg, .jpeg\)"):
        ImageFolder(root=str(root)).load()
    for path in [*(root / "train").iterdir()]:
        path.rename(root / path.name)
    with pytest.raises(DataError, match="train: holds no folder; each class needs one"):
        ImageFolder(root=str(root)).load()


def test_no_test_image(root):
    for path in (root / "test").glob("*/*"):
        path.unlink()
    with pytest.raises(DataError, match="test: holds no image"):
        ImageFolder(root=str(root)).load()


@pytest.mark.parametrize("wrong", [{"channels": 2}, {"size": 0}])
def test_values_out_of_range(wrong):
    with pytest.raises(ValueError, match="is not allowed; must be"):
        ImageFolder(root="x", **wrong)
