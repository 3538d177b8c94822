"""Released numbers that depend on how the last digit of a double is rounded."""


class Between(float):
    """A released number that may lie anywhere in a range, as the last digit of a double decides.

    For example, if there are no records between two bands and exactly the share q of them is below,
    every value between the bands is right.
    """

    ends: tuple[float, float]

    def __new__(cls, low: float, high: float) -> "Between":
        """``low`` as a number that equals every number from ``low`` to ``high``."""
        made = super().__new__(cls, low)
        made.ends = low, high
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and self.ends[0] <= other <= self.ends[1]

    __hash__ = float.__hash__
