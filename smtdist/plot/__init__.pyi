# The public names, and where each is. `__init__.py` reads this file.
from .images import confusion as confusion
from .images import image_map as image_map
from .images import matching_patches as matching_patches
from .images import neighbours as neighbours
from .models import atom_neighbours as atom_neighbours
from .models import curve as curve
from .models import dictionary as dictionary
from .models import filter_axes as filter_axes
from .models import spectrum as spectrum
from .sheets import atoms_as_patches as atoms_as_patches
from .sheets import sheet as sheet
