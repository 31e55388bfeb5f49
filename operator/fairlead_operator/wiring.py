"""Putting the operator together: the only place that makes connections, clocks and ids."""

import os
import secrets
import time
import uuid

import kopf

from fairlead.errors import InvalidInput
from fairlead_operator.cluster import ClusterUnavailable, KubernetesCluster
from fairlead_operator.loops import PoolLoops
from fairlead_operator.rounds import PoolRounds, Surroundings
from fairlead_operator.settings import read_settings
from fairlead_operator.synchronizing import HttpControlPlane

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""As Kubernetes' own generated names: no vowels, so no words; 27^5 are 14 million."""


def new_suffix() -> str:
    """Five random characters for a pod's name."""
    return "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(5))


def new_id() -> str:
    """A random id for an Event's name."""
    return uuid.uuid4().hex[:16]


async def start(memo: kopf.Memo, kopf_settings: kopf.OperatorSettings) -> None:
    """Read the settings, connect, and put the loops into `memo`. Raises PermanentError with one line, which ends the process."""
    try:
        settings = read_settings(os.environ)
        cluster = await KubernetesCluster.connect(settings.kubeconfig)
    except (InvalidInput, ClusterUnavailable) as error:
        raise kopf.PermanentError(str(error)) from error
    control_plane = HttpControlPlane(settings.control_plane)
    surroundings = Surroundings(
        settings=settings, cluster=cluster, control_plane=control_plane, clock=time.time, new_suffix=new_suffix, new_id=new_id
    )
    memo.cluster, memo.control_plane = cluster, control_plane
    memo.loops = PoolLoops(lambda key: PoolRounds(key, surroundings), settings.pace)
    kopf_settings.peering.standalone = True
    kopf_settings.posting.enabled = False
    kopf_settings.watching.server_timeout = 300


async def stop(memo: kopf.Memo) -> None:
    """Undo `start`."""
    await memo.loops.stop()
    await memo.control_plane.close()
    await memo.cluster.close()
