"""A small MQM file of which it is known what a rater marks: ten sources, five systems, two raters.

Most systems fall for the trap of a source in the same way, each in a sentence of its own. One rater marks the wrong word as
a major error; the other marks it together with the word before it, as a minor one. So ratings of the same source tell where
errors are, those of the same rater also how they are marked, and ratings of another source tell nothing.
"""

from __future__ import annotations

from pathlib import Path

from burnish.core.files import write_text

TRAPS = (
    ("a gift", "ein Geschenk", "Gift"),
    ("the chef", "der Koch", "Chef"),
    ("a brief", "die Vorgabe", "Brief"),
    ("the actual price", "der tatsächliche Preis", "aktuelle"),
    ("a billion", "eine Milliarde", "Billion"),
    ("a genial host", "ein freundlicher Gastgeber", "geniale"),
    ("the handy tool", "das praktische Werkzeug", "Handy"),
    ("a mist", "ein Nebel", "Mist"),
    ("the rat race", "die Tretmühle", "Rattenrennen"),
    ("a sensible plan", "ein vernünftiger Plan", "sensible"),
)
"""What stands in the source, what it means, and the word that gives the wrong translation away."""
SYSTEMS = ("Wir sehen", "Hier ist", "Man findet", "Es gibt", "Dort steht")
"""How each system begins."""
COLUMNS = ("system", "doc", "seg_id", "rater", "source", "target", "category", "severity")


def plant_ratings(path: Path) -> Path:
    """Write the file, and give its path."""
    rows = [COLUMNS]
    for number, (said, right, wrong) in enumerate(TRAPS, 1):
        for place, beginning in enumerate(SYSTEMS):
            for rater in ("strict", "mild"):
                cells = (f"system{place + 1}", "planted", str(number), rater, f"We see {said}.")
                if (number + place) % 3 == 0:
                    rows.append((*cells, f"{beginning} {right}.", "No-error", "No-error"))
                elif rater == "strict":
                    text = f"{beginning} den <v>{wrong}</v> heute."
                    rows.append((*cells, text, "Accuracy/Mistranslation", "Major"))
                else:
                    text = f"{beginning} <v>den {wrong}</v> heute."
                    rows.append((*cells, text, "Accuracy/Mistranslation", "Minor"))
    write_text(path, "".join("\t".join(row) + "\n" for row in rows))
    return path
