"""From names to results: load the goods, run the method or the recipe, save what it gives, write the report.

Nothing is loaded before everything that can be checked without loading was found right, and nothing that is finished
is done again: the same request in the same folder gives the result that is there.
"""

from burnish.workflow.goods import Place, check, format_faults, goods_faults, packed_faults
from burnish.workflow.method import folder_of, plan_method, prove, run_method
from burnish.workflow.plan import Plan
from burnish.workflow.recipe import plan_recipe, run_recipe, steps_of
from burnish.workflow.results import PLAIN, Done, Result, default_folder, notes_of

__all__ = [
    "PLAIN",
    "Done",
    "Place",
    "Plan",
    "Result",
    "check",
    "default_folder",
    "folder_of",
    "format_faults",
    "goods_faults",
    "notes_of",
    "packed_faults",
    "plan_method",
    "plan_recipe",
    "prove",
    "run_method",
    "run_recipe",
    "steps_of",
]
