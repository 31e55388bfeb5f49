"""Volumes on disk: one folder for each volume of a pod, and one folder for each claim, which stays after the pod.

The sizes of volumes are not limited.
"""

import os
import shutil
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

from processkube.kubelet.volume_files import VolumeFile


class VolumeFolders:
    """The folders of a node's volumes, below `root`."""

    def __init__(self, root: Path) -> None:
        self._pods = root / "volumes"
        self._claims = root / "claims"

    def stage(self, uid: str) -> Path:
        """Return the folder in which the root file systems of the pod's containers are assembled; it is created if
        necessary.
        """
        return _made(self._pods / uid / "root")

    def of_volume(self, uid: str, name: str) -> Path:
        """Return the folder of a pod's volume; it is created if necessary."""
        return _made(self._pods / uid / "of" / name)

    def of_image(self, uid: str, container: str) -> Path:
        """Return the folder for the files that the image adds to a container, such as /etc/passwd; it is created if
        necessary.
        """
        return _made(self._pods / uid / "image" / container)

    def of_claim(self, claim_uid: str) -> Path:
        """Return the folder of a PersistentVolumeClaim; it is created if necessary."""
        return _made(self._claims / claim_uid)

    def remove(self, uid: str) -> None:
        """Remove the folders of a pod that is gone."""
        shutil.rmtree(self._pods / uid, ignore_errors=True)

    def remove_claims_but(self, claim_uids: Collection[str]) -> None:
        """Remove the folders of all claims except the claims with these uids."""
        for folder in self._claims.iterdir() if self._claims.exists() else ():
            if folder.name not in claim_uids:
                shutil.rmtree(folder, ignore_errors=True)


def write_files(folder: Path, files: Iterable[VolumeFile]) -> None:
    """Write files to the folder. Each file is replaced in one step, so that no reader sees a part of it."""
    for file in files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(descriptor, "wb") as target:
            target.write(file.content)
            os.fchmod(descriptor, file.mode)
        Path(temporary).replace(path)


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
