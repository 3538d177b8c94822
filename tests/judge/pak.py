"""PAK: prefix sums of slots, clipped at a threshold that the warm-up has chosen with noise.

Values and thresholds match exactly. Deviations match except for the last of their six digits.
"""

import math
from fractions import Fraction
from typing import Any, NamedTuple

from .matrices import matrix
from .numbers import held
from .pak_choice import Problem, optimum
from .pak_counter import Counter, Spans, square_for
from .slots import SlotJudge, SlotRules, above
from .smooth import smooth_delta, smooth_threshold
from .stream import Clock
from .tops import Now, Told
from .wide import Chunks, laplace_variance

FANOUT, TALLEST, TAIL = 16, 5, 24
DEFAULT = {"sliding": 0, "decay": 0.0}
FINE = 64  # an average or a decayed sum has 64 times finer steps than a sum


class PakRules(SlotRules):
    """The settings of a PAK pipeline, from its configuration."""

    def _noise(self) -> None:
        super()._noise()
        self.parameters = p = DEFAULT | self.parameters
        budget = self.config["budget"]
        self.epsilon, self.delta = Fraction(budget["epsilon"]), Fraction(budget["delta"])
        late = (self.stretch or self.horizon - self.warmup) * self.per
        draws = len(self.thetas) * (1 + bool(self.stretch))
        draws += 2 * self.slots.bit_length() + 2 * self.slots
        sampling = (1 + 3 ** math.ceil(self.epsilon)) * self.budget * draws * Fraction(1, 2**110)
        self.keep = Fraction(p["decay"]).limit_denominator(10_000)
        self.late, rest = late, self.each - self.watch - self.anew
        self.counter = self._counter(p["counter"], late, rest, self.delta - sampling)
        self.laplace = not self.counter.factors
        self.sums, self.kind = p["publish_warmup"], p["threshold"]
        if self.kind == "auto":
            ranks = p["tail"] or p["safety"] or p["factor"]
            self.kind = "noisy-max" if ranks else "exceedance"
        choice, part = None, _share(p["split"]) or Fraction(7, 10)
        if self.kind != "exceedance":
            choice = optimum(self._problem(late), p["expected"] * self.early)
            part = _share(p["split"]) or choice.split
        if not self.sums or self.kind == "top":
            part = Fraction(self.kind != "top")
        self.first, self.rest = self.each * part, self.each * (1 - part)
        if choice is None:
            self.penalty = self._penalty(self.early, 2 / self.rest**2 if part < 1 else Fraction(0))
            self.again = self._penalty(late, Fraction(0))
            return
        self.rank, self.factor = self._ranked(choice, p["expected"] * self.early)
        if self.stretch:
            records = p["expected"] * late
            problem = self._problem(late)._replace(
                epsilon=self.anew, published=False, records=2 * records)  # fmt: skip
            self.later = self._ranked(optimum(problem, records), records)

    def _penalty(self, seen: int, more: Fraction) -> list[int]:
        """36·√(3V)·m/n·√(θ/B); V is the mean variance of a total, plus ``more``, at threshold 1."""
        noise = Fraction(self.counter.mean()).limit_denominator(1 << 20) ** 2 + more
        square = 36**2 * 3 * noise * Fraction(seen, self.late) ** 2 / self.top
        return [math.isqrt(math.floor(square * theta)) for theta in self.thetas]

    def _problem(self, late: int) -> Problem:
        p = self.parameters
        scale = Fraction(p["excess"]).limit_denominator(1 << 20) if p["excess"] else (
            Fraction(self.top, TAIL))  # fmt: skip
        self.beta = Fraction(p["beta"]).limit_denominator(1 << 40)
        self.small = smooth_delta(self.epsilon, self.delta, self.budget)
        return Problem(
            max(2, p["expected"] * self.slots), self.top, self.each, self.small, scale,
            p["threshold"] == "smooth", self.sums_of(p), self.counter.mean(late // 2), self.beta,
        )  # fmt: skip

    @staticmethod
    def sums_of(p: dict[str, Any]) -> bool:
        """Whether the warm-up's sum is released."""
        return bool(p["publish_warmup"])

    def _ranked(self, choice: Any, records: int) -> tuple[int, Fraction]:
        p = self.parameters
        tail, safety = _share(p["tail"]) or choice.tail, _share(p["safety"]) or choice.safety
        factor = Fraction(p["factor"]).limit_denominator(1000) or choice.factor
        return int(safety * tail * records) + 1, factor

    def _counter(self, name: str, steps: int, rest: Fraction, delta: Fraction) -> Counter:
        made = {"tree": Counter(steps, rest)}
        height = 1
        while height < TALLEST and FANOUT**height < steps:
            height += 1
        if FANOUT**height >= steps:
            made["hierarchy"] = Counter(steps, rest, Chunks(FANOUT, height, rest))
        if name in ("auto", "matrix") and delta > 0:
            factors, k = matrix("auto", steps), self.budget
            square = square_for(factors, rest * k, delta if k == 1 else delta / 2, k)
            if square is not None:
                made["matrix"] = Counter(steps, rest, None, factors, square)
        return min(made.values(), key=Counter.mean) if name == "auto" else made[name]


def _share(value: float) -> Fraction:
    return Fraction(value).limit_denominator(1 << 20)


class Course(NamedTuple):
    """What a window has learned and released."""

    thetas: tuple[int, ...]  # one for each stretch
    base: int = 0  # released before the open stretch
    exact: int = 0  # of the open stretch
    prefixes: tuple[int, ...] = ()  # the warm-up's sum, and every prefix sum released after it
    decayed: int = 0
    seen: tuple[tuple[int, int], ...] = ()


class PakJudge(SlotJudge):
    """Judge of a PAK pipeline."""

    rules: PakRules

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.courses: dict[int, Course] = {}

    def begin(self, trigger: Clock, now: Now) -> Told:
        """Choose the threshold; publish the warm-up's sum if the settings ask for it."""
        rules, fine = self.rules, self.rules.counter.fine
        theta = self.chosen(trigger, now)
        exact = sum(min(value, theta) for _, value in now)
        public = {"threshold": [theta]}
        if not rules.sums:
            self.courses[trigger["window"]] = Course((theta,), prefixes=(0,))
            return {}, public
        scale = theta / rules.rest
        exact += self.noise.laplace("sum", scale, trigger, trigger["index"], b"warmup")
        base = held(exact * fine)
        self.courses[trigger["window"]] = Course((theta,), base, prefixes=(base,))
        row = {
            name: self.told(base, self.warm(theta) * fine**2, fine) for name in ("sum", "prefix")
        }
        views = ["sliding", "average"] * bool(rules.parameters["sliding"])
        views += ["decayed"] * bool(rules.keep)
        row |= {
            name: self.told(0, 0.0, fine * (1 if name == "sliding" else FINE)) for name in views
        }
        return {rules.early - 1: row}, public

    def warm(self, theta: int) -> float:
        """Variance of the warm-up's sum."""
        return laplace_variance(theta / self.rules.rest) if self.rules.sums else 0.0

    def chosen(self, trigger: Clock, now: Now) -> int:
        """The first threshold."""
        rules, kind = self.rules, self.rules.kind
        if kind == "top":
            return rules.top
        if kind == "exceedance":
            return self.balanced(trigger, now, rules.penalty, rules.first, "threshold")
        if kind == "noisy-max":
            return self.ranked(trigger, now, rules.rank, rules.factor, rules.first, "threshold")
        values = sorted(
            (next(theta for theta in rules.thetas if theta >= value) for _, value in now),
            reverse=True,
        )
        drawn = self.noise.laplace(
            "threshold", Fraction(1 << 49), trigger, trigger["index"], b"smooth"
        )
        return smooth_threshold(
            values, rules.thetas, rules.rank, rules.factor,
            (rules.first, rules.small, rules.beta), drawn,
        )  # fmt: skip

    def balanced(
        self, trigger: Clock, now: Now, penalty: list[int], epsilon: Fraction, purpose: str
    ) -> int:
        """The threshold with the best score: it clips few records and brings little noise."""
        thetas = self.rules.thetas
        scores = [-n - more for n, more in zip(above(now, thetas), penalty, strict=True)]
        return thetas[self.loudest(trigger, scores, epsilon, purpose)]

    def ranked(
        self, trigger: Clock, now: Now, rank: int, factor: Fraction, epsilon: Fraction, purpose: str
    ) -> int:
        """The least threshold that is at least ``factor`` times the value at a noisy rank."""
        thetas = self.rules.thetas
        scores = [-abs(n - (rank - 1)) for n in above(now, thetas)]
        found = thetas[self.loudest(trigger, scores, epsilon / 2, purpose)]
        return next((theta for theta in thetas if theta >= factor * found), thetas[-1])

    def go_on(self, trigger: Clock, now: Now) -> Told:
        """The sums of a trigger's slots; at the end of a stretch, the next threshold."""
        rules, t, window = self.rules, trigger["index"], trigger["window"]
        course, fine = self.courses[window], self.rules.counter.fine
        theta, number = course.thetas[-1], len(course.thetas) - 1
        before = rules.warmup - (-number * rules.late // rules.per)

        def draw(
            purpose: str, size: Fraction, step: int, key: bytes, index: int, law: str = "laplace"
        ) -> int:
            first = before - (-step // rules.per)
            if law == "laplace":
                return self.noise.laplace(purpose, size, trigger, first, key, index)
            label = self.noise.label(purpose, size, trigger, 0, first)
            return self.noise.draw(label, key, index, size)

        rows = {}
        for slot in range((t - 1) * rules.per, t * rules.per):
            end = slot + 1 - rules.early  # slots since the warm-up
            exact = course.exact + sum(min(value, theta) for at, value in now if at == slot)
            begins = self.begins(window, number)
            noise = rules.counter.prefix(draw, number, theta, begins, end - number * rules.late)
            prefix = held(course.base + exact * fine + noise)
            course = course._replace(exact=exact, prefixes=(*course.prefixes, prefix))
            rows[slot], course = self.row(course, window, end)
        public = self.watched(trigger, now, theta)
        if rules.stretch:
            course = course._replace(seen=(*course.seen, *now))
            if (t - rules.warmup) % rules.stretch == 0 and t < rules.horizon:
                purpose = f"threshold.{number + 1}"
                if rules.kind == "exceedance":
                    given = rules.again, rules.anew, purpose
                    new = self.balanced(trigger, course.seen, *given)
                else:
                    new = self.ranked(trigger, course.seen, *rules.later, rules.anew, purpose)
                thetas, base = (*course.thetas, new), course.prefixes[-1]
                course = course._replace(thetas=thetas, base=base, exact=0, seen=())
                public["threshold"] = [new]
        self.courses[window] = course
        return rows, public

    def begins(self, window: int, number: int) -> list[int]:
        """Steps of a stretch at which a wide tree starts."""
        rules = self.rules
        late = ((t - 1 - rules.warmup) * rules.per for t in self.renewed[window])
        mine = {slot - number * rules.late for slot in late if slot > 0}
        return sorted({0, *(step for step in mine if 0 < step < rules.late)})

    def row(self, course: Course, window: int, end: int) -> tuple[dict[str, Any], Course]:
        """A slot's columns."""
        rules, fine, known = self.rules, self.rules.counter.fine, course.prefixes
        width = rules.parameters["sliding"]

        def spread(spans: Spans) -> float:
            return self.spread(course, window, spans) * fine**2

        each = held(known[-1] - known[-2])
        whole = spread([(0, end, 1.0)]) + self.warm(course.thetas[0]) * fine**2
        row = {"sum": self.told(each, spread([(end - 1, end, 1.0)]), fine),
               "prefix": self.told(known[-1], whole, fine)}  # fmt: skip
        if width:
            count = min(width, end)
            slid, square = known[-1] - known[-1 - count], spread([(end - count, end, 1.0)])
            mean = math.floor(Fraction(FINE * slid, count) + Fraction(1, 2))
            row["sliding"] = self.told(held(slid), square, fine)
            row["average"] = self.told(mean, square * (FINE / count) ** 2, fine * FINE)
        if rules.keep:
            decayed = math.floor(rules.keep * course.decayed + Fraction(1, 2))
            decayed = held(decayed + FINE * (known[-1] - known[-2]))
            far = int(math.log(2.0**-20) / math.log(float(rules.keep))) + 1
            spans = [(slot, slot + 1, float(rules.keep) ** (end - 1 - slot))
                     for slot in range(max(0, end - far), end)]  # fmt: skip
            row["decayed"] = self.told(decayed, spread(spans) * FINE**2, fine * FINE)
            course = course._replace(decayed=decayed)
        return row, course

    def spread(self, course: Course, window: int, spans: Spans) -> float:
        """Variance of a weighted sum of slots; noise of different stretches is independent."""
        total, late = 0.0, self.rules.late
        for number, theta in enumerate(course.thetas):
            low, high = number * late, (number + 1) * late
            mine = [(max(a, low) - low, min(z, high) - low, w)
                    for a, z, w in spans if a < high and z > low]  # fmt: skip
            if mine:
                begins = self.begins(window, number)
                total += self.rules.counter.variance(theta, begins, mine)
        return total
