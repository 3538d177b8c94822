"""Released numbers of which the last digit of a double decides where they lie."""


class Between(float):
    """A released number of which the last digit of a double decides where it lies in a range.

    Where nothing lies between two bands, and exactly q of the total before, all between is right.
    """

    ends: tuple[float, float]

    def __new__(cls, low: float, high: float) -> "Between":
        """``low`` as a number, which equals all up to ``high``."""
        made = super().__new__(cls, low)
        made.ends = low, high
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and self.ends[0] <= other <= self.ends[1]

    __hash__ = float.__hash__
