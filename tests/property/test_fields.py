"""The random pipelines draw every field of pipeline.proto and every value of its enums, or say why not."""

import draw
import ways
from schema import pipeline_class

DRAWS = 6000


def everything(descriptor, seen=None):
    """Returns Message.field for each field below a message, and Message.field=VALUE for each value of an enum."""
    seen = set() if seen is None else seen
    names = set()
    if descriptor.full_name in seen:
        return names
    seen.add(descriptor.full_name)
    for field in descriptor.fields:
        name = f"{descriptor.name}.{field.name}"
        names.add(name)
        if field.enum_type:
            names |= {f"{name}={value.name}" for value in field.enum_type.values}
        if field.message_type and not field.message_type.GetOptions().map_entry:
            names |= everything(field.message_type, seen)
    return names


def drawn(message):
    """Returns the names of what a message has set. A field that is left out draws the first value of its enum."""
    names = set()
    fields = message.DESCRIPTOR.fields
    for field in fields:
        if field.enum_type and not message.HasField(field.name) if field.has_presence else field.enum_type:
            names.add(
                f"{message.DESCRIPTOR.name}.{field.name}="
                f"{field.enum_type.values_by_number[getattr(message, field.name)].name}"
            )
    for field, value in message.ListFields():
        name = f"{message.DESCRIPTOR.name}.{field.name}"
        names.add(name)
        if field.enum_type:
            names.add(f"{name}={field.enum_type.values_by_number[value].name}")
        elif field.message_type and not field.message_type.GetOptions().map_entry:
            for one in [value] if hasattr(value, "ListFields") else value:
                names |= drawn(one)
    return names


def test_every_field_and_value_is_drawn():
    wanted = everything(pipeline_class().DESCRIPTOR)
    excused = set(draw.NEVER) | set(ways.CHANGED)
    assert not excused - wanted, "these are excused, but pipeline.proto does not have them"
    given = set()
    for seed in range(DRAWS):
        given |= drawn(draw.draw(seed).pipeline)
    assert not given & set(draw.NEVER), "these are drawn, though the list says that they never are"
    assert not sorted(wanted - given - excused), (
        "these are never drawn: add them to draw.py, or to its list with the reason"
    )
