"""Reports: runs and claims as one HTML file that needs nothing else, and the pieces that such pages are made of."""

from burnish.report.compose import render
from burnish.report.forest import Row, forest
from burnish.report.page import Column, Foot, Head, Section, figure, page, table

__all__ = ["Column", "Foot", "Head", "Row", "Section", "figure", "forest", "page", "render", "table"]
