"""The experiments' data: sets of images, series, and stand-ins for both.

Real data is never trained on unless it is what was published: files are checked, and one that is
missing, damaged or in the wrong form is a :class:`DataError` that names it.
"""

from .files import data_root as data_root
from .image_sets import Images as Images
from .image_sets import ImageSet as ImageSet
from .image_sets import images as images
from .metrics import corr as corr
from .metrics import rse as rse
from .published import DataError as DataError
from .series_files import series as series
from .splits import Split as Split
from .splits import Windows as Windows
from .splits import windows as windows
from .synthetic import synthetic_images as synthetic_images
from .synthetic import synthetic_series as synthetic_series
