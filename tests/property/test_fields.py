"""The random pipelines draw every field of pipeline.proto and every value of its enums, or say why not; and several of
those that have it deliver a step."""

import collections
import dataclasses

import data
import draw
import property_test
from schema import pipeline_class

DRAWS, FED = 1000, 4  # pipelines, and how many must deliver a step with each field, value and set of files


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


def delivers(case, folder):
    """Returns whether the case has a step with a row."""
    import feeds

    import feedline

    try:
        fed = feeds.feed(dataclasses.replace(case, steps=1), folder, {})
    except feedline.Error:
        return False
    return any(batch.valid_mask.any() for step in fed.steps for batch in step.batches)


def test_every_field_value_and_set_is_fed(tmp_path):
    property_test.prepare(str(tmp_path))  # begins processes, so nothing has imported feedline before
    import ways

    wanted = everything(pipeline_class().DESCRIPTOR)
    excused = set(draw.NEVER) | set(ways.CHANGED)
    assert not excused - wanted, "these are excused, but pipeline.proto does not have them"
    given, fed = set(), collections.Counter()
    for seed in range(DRAWS):
        case = draw.draw(seed)
        names = drawn(case.pipeline) | {source.files[0].partition("-*")[0] for source in case.pipeline.source}
        given |= names
        fed.update(names if delivers(case, str(tmp_path)) else ())
    assert not given & set(draw.NEVER), "these are drawn, though the list says that they never are"
    wanted |= {name for sets in data.SETS.values() for name in sets}
    assert not {name: fed[name] for name in sorted(wanted - excused) if fed[name] < FED}, (
        "these are fed too rarely: draw them more often in draw.py, or add them to its list with the reason"
    )
