"""What all tests share: `import reference` (the oracle) and `import drawing` (small images and codes)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
