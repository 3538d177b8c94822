"""ToPL: reports of devices become a threshold, a distribution, means and sums.

There is no noise to draw. Counts of reports, means, sums, and the steps of range and threshold
match exactly. Parts of the distribution match to one in a million, deviations to six digits.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from .between import Between
from .beyond import beyond
from .histogram import Judge, Release
from .purses import Costs
from .records import Event
from .rows import named, plain, utc
from .rules import Rules
from .slots import number
from .stream import Clock, Placed
from .survey import NARROW, RANGE, STEP, VALUE, Report, Survey, excess, least

LEFT = {"min_users": 1, "selection": "threshold", "debias": False, "beyond": False, "guard": 1,
        "channel": "hybrid"}  # fmt: skip
MOST = 1 << 32


class ToplRules(Rules):
    """The settings of a ToPL pipeline, from its configuration."""

    survey: Survey

    def __init__(self, config: dict[str, Any], *more: Any) -> None:
        mechanism = config["mechanism"]
        whole = mechanism | {"parameters": LEFT | mechanism["parameters"]}
        super().__init__(config | {"mechanism": whole}, *more)

    def _bound(self) -> None:
        self.budget, self.adaptive, self.cap = self.parameters["reports"], False, None
        self.costs = [Costs(*[Fraction(0)] * 3)]

    def _noise(self) -> None:
        (column,) = self.columns
        self.grid = column.grid
        bound = round(column.high / column.grid) * column.grid
        self.survey = Survey(self.config, bound, self.horizon)
        self.warmup = self.parameters["warmup"]
        self.chosen = self.warmup * self.survey.rounds

    def affordable(self) -> bool:
        """Whether the budget is the pipeline's own; a shared one is not judged."""
        return "shared" not in self.config["budget"]

    def kept(self, event: Event) -> bool:
        """Whether a client of this survey could have sent the report for its unit."""
        if not all(0 <= x < MOST and x == int(x) for x in event.numbers[:4]):
            return False
        group, theta, code = map(int, event.numbers[1:4])
        survey, (channel, step) = self.survey, divmod(theta, STEP)
        wave, fine = range(survey.wave.outputs), survey.fine.outputs
        told = 1 <= step <= survey.buckets
        outputs = {RANGE: wave if theta == 0 else (), NARROW: wave if told and not channel else ()}
        spoken = [range(fine + 2), *[range(fine), range(fine, fine + 2)] * survey.told]
        if told and channel < len(spoken):
            outputs[VALUE] = spoken[channel]
        fits = code in outputs.get(group, ()) and event.numbers[4] == survey.number
        return fits and group == survey.group(event.unit)


class ToplJudge(Judge):
    """Judge of a pipeline of reports."""

    rules: ToplRules

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.slots: dict[Any, set[int]] = defaultdict(set)  # slots with a report, by unit and epoch
        self.taken: dict[tuple[int, int], Counter[Report]] = defaultdict(Counter)
        self.seen: dict[int, Counter[Report]] = defaultdict(Counter)  # by window
        self.told: dict[int, dict[int, int]] = defaultdict(dict)  # by window and group

    def take(self, place: Any, one: Placed) -> None:
        """Count a unit's first report about each slot, up to its number of reports."""
        slot, *report = map(int, one.event.numbers[:4])
        mine = self.slots[place]
        if one.event.sign < 0 or slot in mine or len(mine) >= self.rules.budget:
            return
        mine.add(slot)
        group, theta, code = report
        self.taken[one.window, one.batch][group, theta, code] += 1

    def release(self, trigger: Clock) -> Release:
        """Find the steps that are due at this trigger, and estimate."""
        rules, window, t = self.rules, trigger["window"], trigger["index"]
        survey, smooth = rules.survey, rules.parameters["smooth"]
        self.windows[window].released = t
        told = self.told[window]
        batch = Counter({one: n for one, n in self.taken.pop((window, t), Counter()).items()
                         if one[0] == RANGE or one[1] == told.get(one[0])})  # fmt: skip
        seen = self.seen[window]
        seen.update(batch)
        public: dict[str, list[Any]] = {"survey": [survey.number]}
        exact: list[float] = []
        shares = rules.parameters["beyond"] and t >= rules.chosen
        if shares or t in (rules.chosen, rules.horizon):
            exact = survey.density(seen, NARROW if survey.rounds > 1 else RANGE, smooth)
        if t in (rules.chosen, rules.horizon):
            parts = [round(one * 1e6) for one in exact]
            public["distribution"] = [Between(n - 1, n + 1) for n in parts]
        if survey.rounds > 1 and t == rules.warmup:
            told[NARROW] = found_range(survey, seen, smooth, rules.parameters["guard"])
        if t == rules.chosen:
            find = found_threshold if survey.rounds > 1 else threshold
            told[VALUE] = find(survey, seen, exact, told.get(NARROW, 0))
        public |= {name: [told[group] % STEP] for name, group in
                   (("range", NARROW), ("theta", VALUE)) if group in told}  # fmt: skip
        if survey.told and VALUE in told:
            public["channel"] = [told[VALUE] // STEP]
        if shares:
            public["beyond"] = beyond(survey, seen, told, exact, told[VALUE] % STEP)
        rows = {}
        if values := self.estimates(seen, batch):
            rows[b""] = named(rules, trigger, b"", {}, values)
        return Release(trigger, utc(rules.opens(window)), rows, {}, None, public=public)

    def estimates(self, seen: Counter[Report], batch: Counter[Report]) -> dict[str, Any]:
        """The mean so far, and the sum of this micro-batch."""
        rules, survey = self.rules, self.rules.survey
        so_far, variance = mean(survey, seen)
        if so_far is None:
            return {}
        now, spread = mean(survey, batch)
        differing, reports = difference(survey, seen), batch.total()
        variance += division(survey, seen, differing)
        spread = (spread + division(survey, batch, differing)) * reports**2
        release, floored = rules.config["release"], rules.config["sign"] is None
        made = {}
        for name, value, square in (
            ("mean", so_far, variance), ("sum", (now or Fraction(0)) * reports, spread)
        ):  # fmt: skip
            steps = min(max(round(value / rules.grid), -(1 << 63)), (1 << 63) - 1)
            value = steps * rules.grid
            if name == "mean":
                value = min(max(value, Fraction(0)), survey.bound)
            made[name] = number(value, float(square) ** 0.5, release, floored, rules.grid, False)
        if floored:
            top = float(survey.bound)
            for end in ("low", "high"):
                low, high = made["mean"][end].ends
                made["mean"][end] = Between(min(low, top), min(high, top))
        made["mean"]["value"] = plain(Fraction(made["mean"]["value"]))
        return made


def groups(survey: Survey, seen: Counter[Report]) -> Iterator[tuple[int, int, Counter[Report]]]:
    """Group, step and reports of each part of a mean."""
    places = {one[:2] for one in seen if survey.rounds == 1 or one[0] != RANGE}
    for group, theta in sorted(places):
        yield group, theta, Counter({r: n for r, n in seen.items() if r[:2] == (group, theta)})


def mean(survey: Survey, seen: Counter[Report]) -> tuple[Fraction | None, Fraction]:
    """The mean, weighted by inverse variances, and the variance of its noise."""
    precision, weighted, noise = Fraction(0), Fraction(0), Fraction(0)
    for group, theta, mine in groups(survey, seen):
        top = survey.top(theta)
        worst = survey.worst(group, theta)
        variance = worst * top**2 / 4
        # A report by Square Wave stands for the middle of its bucket.
        middle = Fraction(1) if group == VALUE else Fraction(survey.buckets - 1, survey.buckets)
        said = sum((n * (1 + middle * survey.decoded(r)) / 2 for r, n in mine.items()), Fraction(0))
        precision += mine.total() / variance
        noise += mine.total() / variance * survey.noise(group, theta, mine) / worst
        weighted += said * top / variance
    return (weighted / precision, noise / precision**2) if precision else (None, Fraction(0))


def difference(survey: Survey, seen: Counter[Report]) -> Fraction:
    """The variance among values: variance of the answers minus variance of their noise."""
    group = VALUE if any(r[0] == VALUE for r in seen) else NARROW if survey.rounds > 1 else RANGE
    mine = Counter({r: n for r, n in seen.items() if r[0] == group})
    told = min((r[1] for r in mine), default=0)
    reports, noise = mine.total(), survey.noise(group, told, mine)
    first, second = (sum((n * survey.decoded(r) ** k for r, n in mine.items()), Fraction(0))
                     for k in (1, 2))  # fmt: skip
    inner = second - first**2 / reports if reports else Fraction(0)
    apart = (inner + noise + 1) / max(reports, 1) - noise
    top = survey.top(told)
    return min(max(apart, Fraction(0)), Fraction(1)) * top**2 / 4


def division(survey: Survey, seen: Counter[Report], differing: Fraction) -> Fraction:
    """Squared error of a mean from the random division into groups, and from buckets."""
    precision, squares, halves = Fraction(0), Fraction(0), Fraction(0)
    for group, theta, mine in groups(survey, seen):
        top = survey.top(theta)
        each = 1 / (survey.worst(group, theta) * top**2)
        precision += mine.total() * each
        squares += mine.total() * each**2
        halves += (group != VALUE) * mine.total() * each * top / (2 * survey.buckets)
    if not precision:
        return Fraction(0)
    uneven = max(squares / precision**2 - Fraction(1, seen.total()), Fraction(0))
    return differing * uneven + (halves / precision) ** 2


def threshold(survey: Survey, seen: Counter[Report], exact: list[float], within: int) -> int:
    """The step of least θ²V/4n + T²·θ², for one round.

    The weight θ² of T² is limited to [1/128, 1/4]. A threshold above 3/4 of B becomes B.
    """
    d, reports = survey.buckets, sum(n for r, n in seen.items() if r[0] == RANGE)
    if not reports:
        return d
    values = reports * float((1 - survey.share) / survey.share)
    noise = float(survey.variances[VALUE]) / (4 * values)
    scores = [(n / d) ** 2 * noise + over**2 * min(max((n / d) ** 2, 1 / 128), 1 / 4)
              for n, over in enumerate(excess(exact), 1)]  # fmt: skip
    best = least(scores) + 1
    best = d if 4 * best > 3 * d else best
    return best + STEP * survey.varying(exact)[best - 1][1]


def found_range(survey: Survey, seen: Counter[Report], smooth: bool, guard: float) -> int:
    """Twice the smaller of two guesses: threshold of least error, and a noise-limited quantile."""
    reports = sum(n for r, n in seen.items() if r[0] == RANGE)
    if not reports:
        return survey.buckets
    share, top = survey.density(seen, RANGE, smooth), ends(survey)
    middle = [(a + b) / 2 for a, b in zip([0.0, *top], top, strict=False)]
    cut = [sum(p * max(m - end, 0) for p, m in zip(share, middle, strict=True)) for end in top]
    noise = float(survey.variances[VALUE]) / (4 * values_of(survey, reports))
    weight = min(max(float(survey.epsilon), 0.5), 2.0) ** 4 / 4
    best = top[least([noise * end**2 + weight * c**2 for end, c in zip(top, cut, strict=True)])]
    noise_of_mass = (float(survey.variances[RANGE]) / reports) ** 0.5
    unsure, so_far, rank = min(guard * noise_of_mass, 0.5), 0.0, 0
    while rank < len(share) - 1 and (so_far := so_far + share[rank]) < 1 - unsure:
        rank += 1
    wide = 2 * min(best, top[rank])
    return step_of(survey, 1 if survey.told and wide >= 0.6 else wide)


def found_threshold(survey: Survey, seen: Counter[Report], exact: list[float], within: int) -> int:
    """The step of least θ²V/4n + T²/2 within the range, for two rounds; the range without reports.

    If clients are told a channel, it is B if the range is B, B costs little more, and
    mass above B/2 exceeds 1.5 times its noise. It is twice the range if the range's last eighth
    shows that values were clipped to it, and twice costs less.
    """
    reports = sum(n for r, n in seen.items() if r[0] == NARROW)
    if not reports:
        return within
    d, ways = survey.buckets, survey.varying(exact)
    values = values_of(survey, reports)
    both = zip(excess(exact), ways, strict=True)
    scores = [way[0] / (4 * values) * (n / d) ** 2 + over**2 / 2
              for n, (over, way) in enumerate(both, 1)]  # fmt: skip
    best, doubt = least(scores), (float(survey.variances[NARROW]) / reports) ** 0.5
    if (
        survey.told
        and within == d
        and sum(exact[d // 2 :]) > 1.5 * doubt
        and scores[-1] <= (1 + 0.5 / float(survey.epsilon)) * scores[best]
    ):
        best = d - 1
    step = step_of(survey, (best + 1) / d * float(survey.top(within) / survey.bound))
    mass = sum(exact[-(d // 8) :])
    if survey.told and within < d and mass > doubt:
        end = min(2 * float(survey.top(within) / survey.bound), 1)
        far, noise = step_of(survey, end), float(survey.variances[VALUE]) / (4 * values)
        both = [float(survey.top(n) / survey.bound) for n in (step, far)]
        near, wide = (noise * x**2 + ((mass - doubt / 2) * max(end - x, 0)) ** 2 / 2 for x in both)
        if wide < near:
            return far
    return step + STEP * ways[best][1]


def values_of(survey: Survey, reports: int) -> float:
    """The expected number of value reports, given the reports of one of the two other groups."""
    return reports * 2 * float((1 - survey.share) / survey.share)


def ends(survey: Survey) -> list[float]:
    """Upper ends of the buckets of the scale, as shares of B."""
    return [float(survey.top(n) / survey.bound) for n in range(1, survey.buckets + 1)]


def step_of(survey: Survey, share: float) -> int:
    """The first step whose threshold is at least a share of B."""
    found = sum(end < share * (1 - 1e-12) for end in ends(survey))
    return min(found, survey.buckets - 1) + 1
