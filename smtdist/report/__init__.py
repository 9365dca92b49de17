"""What any file of smtdist holds: as facts for `info`, as one page for `report`, and whether it is whole for `check`.

Start with `facts.py`: a table of kinds of files, each with what is read of it and how people read that. `build.py` makes the page
from `sections.py`, in the HTML of `page.py`. `looks.py` shows what a model does to labelled images. `checking.py` compares
files with their checksums.
"""
