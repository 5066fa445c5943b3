"""What the bodies of calls may hold: each is declared once, as a `Document` beside its handler. It is checked and read
by that, and `/openapi.json` shows it. Pure.

    class Binding(Document):
        EXAMPLE = {"filter": "plant/+/temp"}
        filter: Annotated[str, Meta(min_length=1, description="Addresses, with `+` and `#`.")]

    binding = await read(door, call, Binding)

What only the kernel or the admission can judge stands in the declaration as `shown(...)`: the document says it, and
they refuse it in their own words.
"""
from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, Final, Literal, TypeVar, Union, cast, get_type_hints

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, defstruct
from msgspec.json import schema_components

from gatehouse.gateways.http.problems import Refusal

Schema = dict[str, Any]

REFERENCE: Final = "#/components/schemas/{name}"

_AT: Final = "x-shown"
_SHOWN: Final[list[Schema]] = []
"""What `shown` was given: msgspec keeps plain values alone, and its own before those of others."""

NESTED_MAX: Final = 32
"""Lists and objects in each other: more than any document of this door has."""


class Document(Struct, forbid_unknown_fields=True, kw_only=True):  # decision 260
    """An object that a call takes. A field that may be left out is `UNSET` then; one that is not declared is refused.
    What a schema cannot say is said by `__post_init__`, with a ValueError, and shown by `RULES`."""

    EXAMPLE: ClassVar[Any] = None
    """For `/openapi.json`; it must be valid."""

    RULES: ClassVar[Schema] = {}
    """What the schema says besides of the object as a whole."""

    def given(self) -> dict[str, Any]:
        """The fields that were not left out, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}


D = TypeVar("D", bound=Document)


class Nothing(Document):
    """The body of a call that takes none."""


def shown(**schema: Any) -> Meta:
    """What the schema of a field says besides, or instead, for whoever reads it: others check that."""
    if schema not in _SHOWN:                     # annotations are evaluated again and again
        _SHOWN.append(schema)
    return Meta(extra_json_schema={_AT: _SHOWN.index(schema)})


def schemas_of(shape: type[Document]) -> dict[str, Schema]:
    """The schemas of a document and of those that it is made of, by name; what they refer to is at `REFERENCE`."""
    _, schemas = schema_components([shape], ref_template=REFERENCE)
    for schema in schemas.values():
        del schema["title"]
    schemas = {name: _with_shown(schema) for name, schema in schemas.items()}
    schemas[shape.__name__] |= shape.RULES
    return schemas


def _with_shown(value: Any) -> Any:
    """A schema with what `shown` says of its parts."""
    if isinstance(value, list):
        return [_with_shown(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    schema = {name: _with_shown(entry) for name, entry in value.items() if name != _AT}
    return schema | _SHOWN[value[_AT]] if _AT in value else schema


def choice(values: tuple[str, ...]) -> Any:
    """The type of one of these texts."""
    return Literal.__getitem__(values)


def document_like(name: str, of: type, instead: dict[str, Any], *, without: tuple[str, ...] = (), example: Any = None
                  ) -> type[Document]:
    """The document `name` with the fields of a dataclass, any of which may be left out. `instead` gives the types of
    fields whose bounds the dataclass does not say."""
    hints = get_type_hints(of)
    shape: Any = defstruct(name, [(field.name, Union[instead.get(field.name, hints[field.name]), UnsetType], UNSET)  # noqa: UP007
                            for field in fields(of) if field.name not in without],
                     bases=(Document,), namespace={"EXAMPLE": example}, kw_only=True)
    return cast(type[Document], shape)


def shaped(value: Any, shape: type[D]) -> D:
    """A JSON value, in `whole_numbers`, as the document that it is. Refuses `invalid_body`."""
    try:
        return convert(value, shape)
    except ValidationError as error:
        raise Refusal("invalid_body", f"{error}; there are: {', '.join(shape.__struct_fields__)}"
                      if "unknown field" in str(error) and "$" not in str(error) else str(error)) from None


def whole_numbers(value: Any, levels: int = NESTED_MAX) -> Any:
    """A JSON value with 3.0 as 3: to JSON they are one number (JSON Schema, 6.1.1), and many clients have only one kind
    of number. Refuses `invalid_body` where the value is nested deeper than `levels`."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if not isinstance(value, list | dict):
        return value
    if not levels:
        raise Refusal("invalid_body", f"nothing here is nested deeper than {NESTED_MAX} levels")
    if isinstance(value, list):
        return [whole_numbers(entry, levels - 1) for entry in value]
    return {name: whole_numbers(entry, levels - 1) for name, entry in value.items()}
