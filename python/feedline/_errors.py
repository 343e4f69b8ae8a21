"""The exception that feedline raises."""


class Error(Exception):
    """A failure that feedline reports.

    Attributes:
        category: its kind, for programs: "bad_data_crc", "bad_pipeline", "stalled", ... (docs/errors.md lists them).
        message: what was found, what was wanted and, if it helps, what to do; without the place.
        file, offset, record, feature: where it happened; None where that does not apply. `offset` counts bytes from
            the start of the file, `record` the good records before the place.
    """

    def __init__(self, text, category="bad_pipeline", message=None, file=None, offset=None, record=None, feature=None):
        super().__init__(text)
        self.category = category
        self.message = text if message is None else message
        self.file = file
        self.offset = offset
        self.record = record
        self.feature = feature

    def __reduce__(self):
        return (
            Error,
            (str(self), self.category, self.message, self.file, self.offset, self.record, self.feature),
        )
