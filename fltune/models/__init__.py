"""Networks: the papers' own, by name, and any ``torch.nn.Module`` by import path."""

from fltune.registry import Registry

MODELS = Registry(
    "model",
    {
        "mlp": "fltune.models.mlp:MLP",
        "mlp_fedtorch": "fltune.models.mlp:FedTorchMLP",
        "linear": "fltune.models.linear:Linear",
        "cnn_mnist": "fltune.models.cnn:CNNMnist",
        "cnn_svhn": "fltune.models.cnn:CNNSvhn",
        "cnn_cifar": "fltune.models.cnn:CNNCifar",
        "resnet20": "fltune.models.resnet:ResNet20",
        "resnet18": "fltune.models.resnet:ResNet18",
        "vgg11": "fltune.models.vgg:VGG11",
        "vgg16": "fltune.models.vgg:VGG16",
        "bert": "fltune.models.bert:Bert",
    },
)
