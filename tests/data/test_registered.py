import subprocess
import sys

from fltune.data import DATASETS
from fltune.data.arrays import Npz
from fltune.data.by_writer import EMNISTByWriter
from fltune.data.cifar import CIFAR10, CIFAR100
from fltune.data.digits import Digits
from fltune.data.idx_images import EMNIST, MNIST, FashionMNIST
from fltune.data.image_folder import ImageFolder
from fltune.data.images import Images
from fltune.data.svhn import SVHN
from fltune.parameters import describe

HERE = {
    "digits": Digits,
    "mnist": MNIST,
    "fashion_mnist": FashionMNIST,
    "emnist": EMNIST,
    "emnist_by_writer": EMNISTByWriter,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "svhn": SVHN,
    "npz": Npz,
    "image_folder": ImageFolder,
}


def test_registered_names():
    assert {name: DATASETS.load(name) for name in HERE} == HERE


def test_nothing_is_augmented_unless_asked_for():
    for name, kind in HERE.items():
        defaults = {key: default for key, default, _ in describe(kind)}
        if issubclass(kind, Images):
            assert (defaults["crop_padding"], defaults["flip"]) == (0, False), name


def test_listing_names_imports_nothing_and_loading_only_what_rounds_may_have():
    program = (
        "import sys; from fltune.data import DATASETS, PARTITIONS; list(DATASETS)\n"
        "assert 'torch' not in sys.modules\n"
        f"for name in {list(HERE)}: DATASETS.load(name)\n"
        "PARTITIONS.load('iid')\n"
        "heavy = {'ray', 'optuna', 'mlflow', 'pydantic', 'sklearn', 'torchvision', 'scipy.io', "
        "'PIL', 'h5py'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
