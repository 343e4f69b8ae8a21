"""Message classes of pipeline.proto and of example.proto, which protoc describes."""

import functools
import os
import subprocess
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

HERE = os.path.dirname(os.path.abspath(__file__))
PIPELINE_PROTO = os.path.join(HERE, "..", "..", "flowgraph", "pipeline", "pipeline.proto")


@functools.cache
def _classes(path: str) -> dict:
    """Returns the classes of all messages of a .proto file, by their full names."""
    folder, name = os.path.split(os.path.abspath(path))
    with tempfile.NamedTemporaryFile() as described:
        subprocess.run(["protoc", "-I", folder, "--descriptor_set_out", described.name, name], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(described.read())
    return message_factory.GetMessages(files.file, descriptor_pool.DescriptorPool())


def pipeline_class():
    return _classes(PIPELINE_PROTO)["feedline.config.Pipeline"]


def parse_pipeline(text: str):
    """Returns the pipeline that is written in protobuf's text format."""
    return text_format.Parse(text, pipeline_class()())


_records = _classes(os.path.join(HERE, "example.proto"))
Example = _records["reference.Example"]
SequenceExample = _records["reference.SequenceExample"]
Feature = _records["reference.Feature"]
FeatureList = _records["reference.FeatureList"]


def enum_name(message, field: str) -> str:
    """Returns the name of the value of an enum field."""
    return message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number[getattr(message, field)].name
