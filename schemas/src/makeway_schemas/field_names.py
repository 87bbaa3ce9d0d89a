"""The names that a model knows at a place in a document, for telling the nearest one to whoever mistyped it."""

from collections.abc import Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel


def field_names(model: type[BaseModel], outer: Sequence[str | int]) -> list[str]:
    """The fields of the model that stands at `outer` in a document of `model`; none where no model stands there."""
    inner: Any = model
    for part in outer:
        inner = _inside(inner, part)
    found = _model_in(inner)
    return [] if found is None else [info.alias or name for name, info in found.model_fields.items()]


def _inside(annotation: Any, part: str | int) -> Any:
    """The annotation of what stands below `part` in a value of this annotation."""
    if isinstance(part, int):
        return next(
            (get_args(each)[0] for each in _alternatives(annotation) if get_origin(each) in (list, tuple)), None
        )
    model = _model_in(annotation)
    if model is not None:
        return next((info.annotation for name, info in model.model_fields.items() if part in (name, info.alias)), None)
    arguments = next((get_args(each) for each in _alternatives(annotation) if get_origin(each) is dict), ())
    return arguments[1] if len(arguments) == 2 else None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    return next(
        (each for each in _alternatives(annotation) if isinstance(each, type) and issubclass(each, BaseModel)), None
    )


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """The types behind unions and annotations."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return tuple(each for part in get_args(annotation) for each in _alternatives(part))
    return (annotation,)
