"""Typed config sections, derived from the components themselves.

The hyperparameters of an algorithm, server optimizer, model or sampler are declared once, by its
dataclass fields (:func:`fltune.parameters.parameter`) or its constructor's signature. From that
this module makes a frozen pydantic model, so that a section of a file is checked with the same
names, types and ranges, and every error carries its dotted key.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import torch
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    PydanticSchemaGenerationError,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from fltune.errors import nearest
from fltune.federation.schedules import SCHEDULES, Schedule
from fltune.parameters import Meta
from fltune.registry import Registry, UnknownNameError

GIVEN_AT_BUILD = ("input_shape", "num_classes", "params")
"""Constructor arguments that the data set (or the model) supplies, not the user."""

KEPT = 1024
"""Sections of one kind that are kept once they have been parsed; they cannot change."""

TORCH_FLAGS = ("foreach", "maximize", "capturable", "differentiable", "fused")
"""Arguments of a ``torch.optim`` class on how it computes, not what; maximize would go uphill."""


T = TypeVar("T")


class Section(BaseModel):
    """A frozen section that knows no keys but its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise problem(f"found {value!r}; should be a number")
    return value


Integer = Annotated[int, BeforeValidator(_no_bool)]
Real = Annotated[float, BeforeValidator(_no_bool)]


class Component(Section):
    """A section that names a component and holds its hyperparameters.

    Attributes:
        target: the class that the name stands for.
        own: the fields that go to the constructor of ``target``.
    """

    target: ClassVar[Any]
    own: ClassVar[tuple[str, ...]] = ()
    name_key: ClassVar[str] = "name"
    _checked: bool = PrivateAttr(False)

    @property
    def component_name(self) -> str:
        """The name or import path in the file."""
        return getattr(self, self.name_key)

    def options(self) -> dict[str, Any]:
        """The hyperparameters, nested components built."""
        values = {name: getattr(self, name) for name in self.own}
        return {k: v.build() if isinstance(v, Component) else v for k, v in values.items()}

    def build(self, **given: Any) -> Any:
        """Construct the component; ``given`` holds what the data set supplies.

        Raises:
            ValueError: hyperparameters that do not go together.
        """
        extra = {k: v for k, v in given.items() if k in _arguments(self.target)}
        return self.target(**{**extra, **self.options()})

    @model_validator(mode="after")
    def _goes_together(self) -> Component:
        if self.stands_alone and not self._checked:  # pydantic asks again wherever it is put in
            try:
                self.build()
            except TypeError as error:
                raise problem(str(error)) from None
            self._checked = True
        return self

    @property
    def stands_alone(self) -> bool:
        """Whether the component can be built, and so checked, without data."""
        return dataclasses.is_dataclass(self.target)


@functools.cache
def _arguments(target: Any) -> frozenset[str]:
    """Return what a component's constructor takes; a search asks this thousands of times."""
    return frozenset(inspect.signature(target).parameters)


class Parsed(Generic[T]):
    """What has been parsed before: a search parses the same section for every value of others."""

    def __init__(self) -> None:
        self._kept: dict[str, T] = {}

    def get(self, raw: Mapping[str, Any], parse: Callable[[], T]) -> T:
        """Return what a mapping was parsed to, or parse it now; a failure is not kept."""
        try:
            text = json.dumps(raw)
        except TypeError:  # it holds an object, and texts of these may be the same
            return parse()
        if text not in self._kept or not still_named(self._kept[text]):
            made = parse()
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[text] = made
        return self._kept[text]


def still_named(made: Any) -> bool:
    """Whether the import paths in a parsed section stand for what they did then.

    A notebook may have defined a class anew, or loaded its module again.
    """
    if not isinstance(made, BaseModel):
        return True
    if isinstance(made, Component):
        module, colon, attribute = getattr(made, made.name_key, "").partition(":")
        if colon and getattr(sys.modules.get(module), attribute, None) is not made.target:
            return False
    return all(still_named(value) for value in vars(made).values())


def validate(model: type[BaseModel], raw: Any) -> Any:
    """Validate a mapping; unknown keys are reported with the nearest known one.

    Raises:
        ValidationError: all problems, each with its location.
    """
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise ValidationError.from_exception_data(
            error.title, [_reworded(line, model) for line in error.errors(include_url=False)]
        ) from None


def _known_keys(model: type[BaseModel], location: Sequence[Any]) -> list[str]:
    """Return the keys of the section that holds a location, inside a model."""
    for part in location[:-1]:
        below = model.model_fields[part].annotation
        if not (inspect.isclass(below) and issubclass(below, BaseModel)):
            return []
        model = below
    return list(model.model_fields)


def _reworded(line: Any, model: type[BaseModel]) -> InitErrorDetails:
    kind, location, found = line["type"], line["loc"], line["input"]
    if kind == "extra_forbidden":
        key, known = str(location[-1]), _known_keys(model, location)
        text = f"unknown key{nearest(key, known)}; known: {', '.join(known)}"
        return InitErrorDetails(type=problem(text), loc=location, input=found)
    if kind == "fltune":
        return InitErrorDetails(type=problem(line["msg"]), loc=location, input=found)
    if kind == "value_error":
        return InitErrorDetails(type=problem(str(line["ctx"]["error"])), loc=location, input=found)
    shown = f"found {found!r}" if kind != "missing" else "missing"
    text = line["msg"].replace("Input should", "should").replace("Field required", "required")
    return InitErrorDetails(type=problem(f"{shown}; {text}"), loc=location, input=found)


def problem(text: str) -> PydanticCustomError:
    """Return an error to raise inside a validator; the text is shown as it is."""
    return PydanticCustomError("fltune", "{text}", {"text": text})


def located(key: str, text: str) -> InitErrorDetails:
    """Return one line of a ValidationError, for a section that says more than one thing."""
    return InitErrorDetails(type=problem(text), loc=(key,), input=None)


def problems(error: ValidationError, prefix: str = "") -> list[str]:
    """Return one sentence per error: ``server.beta: found 1.0; should be less than 1``."""
    lines = []
    for line in error.errors(include_url=False):
        key = ".".join(str(part) for part in line["loc"])
        where = f"{prefix}.{key}".strip(".") if prefix else key
        lines.append(f"{where}: {line['msg']}" if where else line["msg"])
    return lines


@dataclasses.dataclass(frozen=True, eq=False)
class Named:
    """The parser of a section that names one of a registry's components.

    Use it as ``Annotated[Component, BeforeValidator(Named(SERVERS))]``.

    Args:
        registry: where names are looked up.
        base: section class with further fields that every component of this kind has.
        key: the key that holds the name.
        default: the component of a section that names none.
    """

    registry: Registry
    base: type[Component] = Component
    key: str = "name"
    default: str | None = None
    _parsed: Parsed[Component] = dataclasses.field(default_factory=Parsed, init=False, repr=False)

    def __call__(self, raw: Any) -> Component:
        """Return the typed section."""
        if isinstance(raw, Component):
            return raw
        if isinstance(raw, str):
            raw = {self.key: raw}
        kind = self.registry.kind
        if not isinstance(raw, Mapping):
            raise problem(f"found {raw!r}; a {kind} is a name or a mapping with {self.key!r} in it")
        name = raw.get(self.key, self.default)
        if not isinstance(name, str):
            known = ", ".join(self.registry)
            found = (
                f"{self.key} is {name!r}" if self.key in raw else f"no {self.key!r} in {dict(raw)}"
            )
            raise problem(
                f"{found}; name a {kind}: {known}; or an import path such as my_package.module:Name"
            )
        return self._parsed.get(raw, lambda: self._parse(raw, name))

    def _parse(self, raw: Mapping[str, Any], name: str) -> Component:
        try:
            target = self.registry.load(name)
        except UnknownNameError as error:
            raise ValidationError.from_exception_data(
                self.registry.kind,
                [InitErrorDetails(type=problem(str(error)), loc=(self.key,), input=name)],
            ) from None
        model = component_model(target, self.base, self.key)
        made: Component = validate(model, {**raw, self.key: name})
        return made


def named_sections(model: type[BaseModel]) -> dict[str, Named]:
    """Return the sections of a model that name a component, each with its parser."""
    return {
        name: own.func
        for name, field in model.model_fields.items()
        for own in field.metadata
        if isinstance(own, BeforeValidator) and isinstance(own.func, Named)
    }


@functools.cache
def component_model(
    target: Any, base: type[Component] = Component, key: str | None = None
) -> type[Component]:
    """Make the section class of one component from its declared hyperparameters.

    Raises:
        PydanticCustomError: one of them has the name of something else in a section.
    """
    fields = {name: field for name, field in declared(target).items() if name != key}
    _check_names(target, fields, base)
    named: dict[str, Any] = {} if key is None else {key: (str, ...)}
    model = create_model(getattr(target, "__name__", "Component"), __base__=base, **named, **fields)
    model.target = target if inspect.isclass(target) else staticmethod(target)  # not a method
    model.own = tuple(fields)
    model.name_key = key or "name"
    return model


def _check_names(target: Any, names: Iterable[str], base: type[Component]) -> None:
    """Refuse a hyperparameter that would hide what a section has of its own."""
    mine = {*base.model_fields, *base.__class_vars__}
    for name in names:
        if name in mine or hasattr(base, name):
            raise problem(
                f"{target.__name__} has a parameter {name!r}, and this section uses that name "
                "itself; give it another one"
            )


def declared(target: Any) -> dict[str, Any]:
    """Return pydantic field definitions of a component's hyperparameters."""
    if dataclasses.is_dataclass(target):
        hints = typing.get_type_hints(target)
        return {
            f.name: _dataclass_field(f, hints[f.name])
            for f in dataclasses.fields(target)
            if f.init and "meta" in f.metadata
        }
    hints = _hints(target)
    torch_optimizer = inspect.isclass(target) and issubclass(target, torch.optim.Optimizer)
    hidden = (*GIVEN_AT_BUILD, *(TORCH_FLAGS if torch_optimizer else ()))
    return {
        name: (
            _buildable(closed(hints.get(name, Any))),
            ... if p.default is inspect.Parameter.empty else p.default,
        )
        for name, p in inspect.signature(target).parameters.items()
        if name not in hidden
        and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        and not name.startswith("_")
    }


def _buildable(hint: Any) -> Any:
    """Return a type hint, or Any where pydantic cannot validate it (a torch.device)."""
    try:
        TypeAdapter(hint)
    except PydanticSchemaGenerationError:
        return Any  # the constructor itself will check
    return hint


def _hints(target: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except (NameError, TypeError):
        return {}  # annotations that cannot be resolved: the constructor itself will check


def _dataclass_field(f: dataclasses.Field[Any], hint: Any) -> tuple[Any, Any]:
    meta: Meta = f.metadata["meta"]
    bounds = {k: v for k in ("gt", "ge", "lt", "le") if (v := getattr(meta, k)) is not None}
    annotation = closed(hint, Field(**bounds) if bounds else None)
    if meta.choices is not None:
        annotation = Annotated[annotation, BeforeValidator(_one_of(meta.choices))]
    if f.default_factory is not dataclasses.MISSING:
        return annotation, Field(default_factory=f.default_factory, description=meta.doc)
    default = ... if f.default is dataclasses.MISSING else f.default
    return annotation, Field(default, description=meta.doc)


def _one_of(choices: tuple[Any, ...]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value not in choices:
            allowed = ", ".join(map(str, choices))
            near = nearest(str(value), map(str, choices))
            raise problem(f"found {value!r}; must be one of {allowed}{near}")
        return value

    return check


def closed(hint: Any, bound: Any = None) -> Any:
    """Return a type hint whose numbers obey ``bound`` and refuse true and false.

    Nested components (a schedule) become sections of their own. ``float | Tensor`` is a number.
    """
    if hint in (int, float):
        number = Integer if hint is int else Real
        return Annotated[number, bound] if bound is not None else number
    if inspect.isclass(hint) and issubclass(hint, Schedule):
        return SerializeAsAny[Annotated[Component, BeforeValidator(Named(SCHEDULES))]]
    origin, arms = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return list[closed(arms[0], bound)]  # type: ignore[misc]
    if origin is tuple:
        return tuple[tuple(a if a is ... else closed(a, bound) for a in arms)]  # type: ignore[misc]
    if torch.Tensor in arms:
        plain = tuple(a for a in arms if a is not torch.Tensor)
        return closed(typing.Union[plain], bound)  # noqa: UP007
    if type(None) in arms:
        others = [closed(a, bound) for a in arms if a is not type(None)]
        return typing.Optional[others[0] if len(others) == 1 else hint]  # noqa: UP045
    return hint
