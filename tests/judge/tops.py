"""ToPS: sums of slots and prefix sums, clipped at a threshold that the warm-up has chosen.

Values and thresholds match exactly. Deviations, and so the ends of intervals, match except for the
last of their six digits: a deviation is a sum of doubles.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from .numbers import held
from .slots import SlotJudge, SlotRules, above
from .stream import Clock
from .wide import FINE, Chunks, Endless, endless, laplace_variance, mean_variance, shape

Now = Sequence[tuple[int, int]]  # slot and value, in grid steps
Told = tuple[dict[int, dict[str, Any]], dict[str, list[int]]]
PAST = {"recent": 1, "mean": 0}  # blocks that a prediction uses


class TopsRules(SlotRules):
    """The settings of a ToPS pipeline, from its configuration."""

    def _noise(self) -> None:
        super()._noise()
        p = self.parameters
        late = self.stretch * self.per or self.slots - self.early
        rest, load = self.each - self.watch - self.anew, p["expected"]
        self.past = max(1, PAST.get(p["smoother"], p["history"]))
        self.tree: Chunks | Endless
        if p["stream"] == "infinite":
            fanout = p["fanout"] or 16
            self.tree, self.width = endless(late, rest, load, fanout, p["skip"], self.past)
        else:
            given = p["fanout"], p["height"], p["skip"]
            b, levels, skip = shape(late, rest, load, given, late if self.anew else 0, self.past)
            self.tree, self.width = Chunks(b, levels, rest), b**skip
        # A tenth of the warm-up's ε releases its sum, which predicts the first block.
        self.first, self.warm, self.warm_width = self.each * Fraction(9, 10), None, 1
        self.told = self.each / 10
        if p["publish_warmup"]:
            self._publish(load)
        usual = Fraction(load, 4) ** 2
        self.weight = usual / (usual + self._unsure() / self.early**2)
        self.penalty, self.later = (self._penalty(seen, late) for seen in (self.early, late))
        widest, fine = max(self.width, self.warm_width), 64
        while fine > 1 and self.top * widest * fine >= 1 << 40:
            fine //= 2
        self.fine = widest * fine  # output steps in a grid step

    def _publish(self, load: int) -> None:
        share = Fraction(self.parameters["threshold_share"]).limit_denominator(1000)
        rest, self.first = self.each * (1 - share), self.each * share
        given = self.parameters["fanout"], 0, -1
        b, levels, skip = shape(self.early, rest, load, given, past=self.past)
        while self.early % b**skip:
            skip -= 1
        self.warm, self.warm_width = Chunks(b, levels, rest, "warmup"), b**skip

    def _unsure(self) -> Fraction:
        """Variance of the warm-up's released sum at threshold 1."""
        if self.warm is None:
            return 2 / self.told**2
        return Fraction(self.spread(FINE) / FINE**2).limit_denominator(1 << 20)

    def spread(self, theta: int) -> float:
        """Variance of the warm-up's released sum at a threshold, with noise on the grid."""
        if self.warm is None:
            return laplace_variance(theta / self.told)
        return self.warm.variance([(0, theta)], [(0, self.early // self.warm_width, 1.0)])

    def opening(self, theta: int, told: int | None = None) -> int:
        """The predicted value of each slot of a first block; ``told`` is a released warm-up sum."""
        usual = Fraction(self.fine * self.parameters["expected"] * theta, 4)
        if told is None:
            return math.floor(usual)
        mixed = self.weight * told / self.early + (1 - self.weight) * usual
        return held(max(0, math.floor(mixed)))

    def _penalty(self, seen: int, late: int) -> list[int]:
        """By threshold: how many fewer records it must clip to make up for its noise."""
        p, b = self.parameters, self.tree.fanout
        if p["excess"]:
            excess, height = Fraction(p["excess"]).limit_denominator(1 << 20), p["height"] or 1
            while not p["height"] and height < 5 and b**height < late:
                height += 1
            unit = Fraction(3 * seen) / (excess * b**height * self.tree.epsilon)
            square = unit**2 * 2 * (b - 1) * height**3
            return [math.isqrt(math.floor(square * theta**2)) for theta in self.thetas]
        mean = mean_variance(self.tree, self.width, late, self.past)
        noise = Fraction(mean).limit_denominator(1 << 20)
        # 36·K·√(θ/B) with K = √(6V)·m/n
        square = 36**2 * 6 * noise * Fraction(seen, late) ** 2 / self.top
        return [math.isqrt(math.floor(square * theta)) for theta in self.thetas]


class Blocks(NamedTuple):
    """The blocks of a window that were released, and the open one."""

    partial: int = 0  # exact clipped sum of the open block
    total: int = 0  # released total, in output steps
    past: tuple[int, ...] = ()  # released totals of blocks, the newest first


class Stream(NamedTuple):
    """What a window has learned and released."""

    thetas: tuple[int, ...]  # one for each stretch
    base: int  # released sum of the warm-up
    each: int  # predicted for each slot of the first block
    blocks: Blocks
    seen: tuple[tuple[int, int], ...] = ()  # records of the open stretch


class TopsJudge(SlotJudge):
    """Judge of a ToPS pipeline."""

    rules: TopsRules

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.streams: dict[int, Stream] = {}

    def begin(self, trigger: Clock, now: Now) -> Told:
        """Choose the threshold; publish the warm-up if the settings ask for it."""
        rules = self.rules
        scores = [-n - bar for n, bar in zip(above(now, rules.thetas), rules.penalty, strict=True)]
        theta = rules.thetas[self.loudest(trigger, scores, rules.first)]
        rows: dict[int, dict[str, Any]] = {}
        blocks = Blocks()
        if rules.warm is not None:
            steps = (rules.warm, rules.warm_width, trigger["index"] - 1, rules.early)
            blocks, rows = self.course(trigger, now, blocks, steps, [(0, theta)], (0, rules.early))
        public, told = {"threshold": [theta]}, blocks.total
        if rules.warm is None:
            exact, size = sum(min(value, theta) for _, value in now), theta / rules.told
            noise = self.noise.laplace("sum", size, trigger, trigger["index"], b"warmup")
            public["warmup_sum"] = [held(exact + noise)]
            told = public["warmup_sum"][0] * rules.fine
        each = rules.opening(theta, told)
        self.streams[trigger["window"]] = Stream((theta,), blocks.total, each, Blocks())
        return rows, public

    def go_on(self, trigger: Clock, now: Now) -> Told:
        """The sums of a trigger's slots; at the end of a stretch, the next threshold."""
        rules, t, window = self.rules, trigger["index"], trigger["window"]
        stream, theta = self.streams[window], self.streams[window].thetas[-1]
        steps = (rules.tree, rules.width, rules.warmup, rules.per)
        slots = ((t - 1) * rules.per, t * rules.per)
        blocks, rows = self.course(
            trigger, now, stream.blocks, steps, self.pieces(window), slots, stream
        )
        public = self.watched(trigger, now, theta)
        stream = stream._replace(blocks=blocks)
        if rules.stretch:
            stream = stream._replace(seen=(*stream.seen, *now))
            if (t - rules.warmup) % rules.stretch == 0 and t < rules.horizon:
                counts = above(stream.seen, rules.thetas)
                scores = [-n - bar for n, bar in zip(counts, rules.later, strict=True)]
                purpose = f"threshold.{len(stream.thetas)}"
                new = rules.thetas[self.loudest(trigger, scores, rules.anew, purpose)]
                stream = Stream((*stream.thetas, new), stream.base, stream.each, blocks)
                public["threshold"] = [new]
        self.streams[window] = stream
        return rows, public

    def pieces(self, window: int) -> list[tuple[int, int]]:
        """The blocks at which a chunk begins, because of a new stretch or nonce."""
        rules, stream = self.rules, self.streams[window]
        length = rules.stretch * rules.per // rules.width or 1 << 60
        late = [(t - 1 - rules.warmup) * rules.per for t in self.renewed[window]]
        begins = {slot // rules.width for slot in late if slot > 0}
        begins |= {n * length for n in range(len(stream.thetas))}
        if isinstance(rules.tree, Endless):
            begins = {0}
        return [(n, stream.thetas[n // length]) for n in sorted(begins)]

    def course(
        self, trigger: Clock, now: Now, memory: Blocks, steps: tuple[Any, int, int, int],
        pieces: list[tuple[int, int]], slots: tuple[int, int], stream: Stream | None = None,
    ) -> tuple[Blocks, dict[int, dict[str, Any]]]:  # fmt: skip
        """Rows of consecutive slots.

        Args:
            steps: tree, slots of a block, the last trigger before any block, slots of a trigger.
            pieces: blocks at which chunks begin, and their thresholds.
            slots: first slot, and end of the slots.
            stream: stream of the window, after its warm-up.
        """
        rules, (tree, width, before, per) = self.rules, steps
        theta, offset = pieces[-1][1], 0 if stream is None else rules.early
        theta = theta if stream is None else stream.thetas[-1]
        loud = 0.0 if stream is None else rules.spread(stream.thetas[0])
        share, before_all = float(rules.weight) / rules.early, float(rules.warm is not None)

        def draw(purpose: str, scale: Fraction, step: int, key: bytes, index: int) -> int:
            first = before - (-step * width // per)
            return self.noise.laplace(purpose, scale, trigger, first, key, index)

        rows = {}
        for slot in range(*slots):
            block, place = divmod(slot - offset, width)
            exact = sum(min(value, theta) for at, value in now if at == slot)
            guess, parts = self.guess(memory, theta, block, width, stream)
            # weight of the warm-up's noise in the slot, and in the running total
            mine = 0.0 if block else share
            running = before_all + (place + 1) * mine
            value, ends = guess, (place + 1) * held(guess) + memory.total
            own: list[tuple[int, int, float]] = parts
            upto = [(0, block, 1.0), *((a, z, w * (place + 1)) for a, z, w in parts)]
            memory = memory._replace(partial=memory.partial + exact)
            if place + 1 == width:
                noise = self.drawn(tree, draw, pieces, block, rules.fine // width) * width
                shown = held(memory.partial * rules.fine + noise)
                value = shown - (width - 1) * guess
                past = (shown, *memory.past)[: PAST.get(rules.parameters["smoother"],
                                                        rules.parameters["history"])]  # fmt: skip
                memory = Blocks(0, held(memory.total + shown), past)
                own = [(block, block + 1, 1.0), *((a, z, (1 - width) * w) for a, z, w in parts)]
                ends, upto = memory.total, [(0, block + 1, 1.0)]
                mine, running = (width - 1) * mine, before_all
            total = held(held(ends) + (stream.base if stream is not None else 0))
            spread = (
                tree.variance(pieces, own) + mine**2 * loud,
                tree.variance(pieces, upto) + running**2 * loud,
            )
            rows[slot] = {
                name: self.told(one, variance * rules.fine**2, rules.fine)
                for name, one, variance in zip(
                    ("sum", "prefix"), (value, total), spread, strict=True
                )
            }
        return memory, rows

    @staticmethod
    def drawn(tree: Any, draw: Any, pieces: list[tuple[int, int]], block: int, fine: int) -> int:
        """Noise of a block: the difference of two rounded totals."""
        start, after = tree.prefix(draw, pieces, block + 1)
        before = tree.prefix(draw, pieces, block)[1] if block > start else Fraction(0)
        return math.floor(after * fine + Fraction(1, 2)) - math.floor(
            before * fine + Fraction(1, 2)
        )

    def guess(
        self, memory: Blocks, theta: int, block: int, width: int, stream: Stream | None
    ) -> tuple[int, list[tuple[int, int, float]]]:
        """The prediction for each slot of an open block, and the earlier blocks in it."""
        p = self.rules.parameters
        if not block:
            return stream.each if stream else self.rules.opening(theta), []
        if p["smoother"] == "mean":
            each = Fraction(memory.total, block * width)
            return math.floor(each), [(0, block, 1 / (block * width))]
        weights = smooth(p, len(memory.past))
        whole = sum((w * one for w, one in zip(weights, memory.past, strict=True)), Fraction(0))
        if p["smoother"] == "median":
            ordered = sorted(memory.past)
            whole = Fraction(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2], 2)
        spans = [(block - 1 - age, block - age, float(w) / width) for age, w in enumerate(weights)]
        return math.floor(whole / width), spans


def smooth(p: Mapping[str, Any], known: int) -> list[Fraction]:
    """Weights of the newest totals by age; a median weights the middle ages."""
    raw = [Fraction(1)] * known
    if p["smoother"] == "exponential":
        rate = 1 - Fraction(p["alpha"]).limit_denominator(1000)
        raw = [rate**age for age in range(known)]
    elif p["smoother"] == "median":
        raw = [Fraction(age in ((known - 1) // 2, known // 2)) for age in range(known)]
    return [one / sum(raw) for one in raw]
