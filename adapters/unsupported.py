"""What does an adapter raise when it has no way to put a question to its framework?"""


class CannotAnswer(Exception):
    """The framework or the adapter cannot do this: why, and the step or input at fault."""

    def __init__(self, why: str, place: str = ""):
        super().__init__(why)
        self.why = why
        self.place = place
