"""Archives unpacked as safely as this Python can."""

import tarfile
from pathlib import Path


def unpack_tar(archive: Path, folder: Path) -> None:
    """Unpack an archive of any compression into a folder that exists."""
    with tarfile.open(archive) as tar:
        # Debian 12's Python 3.11.2 has no extraction filters yet and ignores this attribute.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)
