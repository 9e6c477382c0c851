"""Which games count, and which must not be put together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from burnish.core.errors import BadInput
from burnish.data.arena_hard import Game


def counted(games: Sequence[Game]) -> list[Game]:
    """The games that have a verdict, and whose swap has one."""
    verdicts = Counter(_pair(game) for game in games if game.verdict is not None)
    return [game for game in games if verdicts[_pair(game)] == 2]


def _pair(game: Game) -> tuple[str, str, str]:
    """What a game shares with its swap alone."""
    return game.judge, game.model, game.uid


def agreements(games: Sequence[Game]) -> list[tuple[str, bool]]:
    """For each pair of games with two verdicts, the prompt and whether both prefer the same answer."""
    pairs: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for game in games:
        if game.score is not None:
            pairs[_pair(game)].append(game.score)
    return [(uid, scores[0] == scores[1]) for (_, _, uid), scores in pairs.items() if len(scores) == 2]


def without_own(games: Sequence[Game]) -> tuple[list[Game], list[str]]:
    """The games but those of judges that are among the models, and these models' names."""
    judges = {game.judge for game in games}
    # A server's judge is called url#name, one in this process name@hash.
    judges |= {judge.rpartition("#")[2].partition("@")[0] for judge in judges}
    own = sorted({game.model for game in games} & judges)
    left = [game for game in games if game.model not in own]
    if not left:
        raise BadInput(f"{', '.join(own)} judged nothing but its own answers", "take another judge")
    return left, own


def refuse_mixtures(by_category: Mapping[str, Sequence[Game]], panel: bool) -> None:
    """Refuse verdicts that cannot be compared with one another.

    Args:
        by_category: The games of each category.
        panel: Several judges are meant, who must have judged the same answers.

    Raises:
        BadInput: listing all faults.
    """
    faults = []
    for category, games in by_category.items():
        where = category or "the file"
        by_judge: dict[str, list[Game]] = defaultdict(list)
        for game in games:
            by_judge[game.judge].append(game)
        mixed = [] if panel else [("judges", set(by_judge))]
        mixed += [("sets of judging instructions", {one.prompt for one in own}) for _, own in sorted(by_judge.items())]
        mixed += [("baselines", {game.baseline for game in games})]
        for what, values in mixed:
            if len(values) > 1:
                named = ", ".join(sorted(value or "(not recorded)" for value in values))
                faults.append(f"{where}: {len(values)} {what}: {named}")
        judged = {judge: {(game.model, game.uid) for game in own} for judge, own in by_judge.items()}
        every = set().union(*judged.values())
        if panel:
            faults += [
                f"{where}: {judge} did not judge {len(every - done)} answers that others of the panel did"
                for judge, done in sorted(judged.items())
                if every - done
            ]
    if faults:
        more = "" if panel else "; --panel lets several judges vote as one"
        raise BadInput.of("these judgments cannot be compared with one another", faults, f"score each by itself{more}")
