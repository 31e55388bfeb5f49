"""Settings of the host process: the settings of the control API, and the settings for joining the API to the web UI."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead_api.settings import Settings as ApiSettings
from fairlead_process.environment import group, read, variable
from fairlead_process.kinds import Switch
from fairlead_process.logs import LogSettings
from fairlead_process.shared_variables import PUBLIC_URL
from fairlead_web.live.clusters import ClusterSettings
from fairlead_web.text.outside_links import LinkPatterns


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """Settings of the host process. If `public_url` is None, it is the address on which the process listens."""

    web: bool = field(
        default=True,
        metadata=variable(
            "FAIRLEAD_WEB", Switch(), "serve the web UI together with the API", "0 leaves paths outside the API unanswered (404)"
        ),
    )
    public_url: str | None = field(default=None, metadata=PUBLIC_URL)
    links: LinkPatterns = field(default_factory=LinkPatterns, metadata=group(LinkPatterns))
    clusters: ClusterSettings = field(default_factory=ClusterSettings, metadata=group(ClusterSettings))
    api: ApiSettings = field(metadata=group(ApiSettings))

    @property
    def logs(self) -> LogSettings:
        """The API's log settings, which apply to the whole process."""
        return self.api.logs


def read_settings(environment: Mapping[str, str]) -> HostSettings:
    """Return the settings from environment variables. Raises InvalidInput for a missing or unusable variable."""
    return read(HostSettings, environment)
